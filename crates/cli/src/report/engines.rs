//! Each engine's colour and mark, the same on every page.

use maud::{Markup, html};

/// The engines everyone has; their classes in `style.css` bear these names.
const KNOWN: [&str; 5] = [
    "kernel",
    "kernel-random",
    "kernel-sequential",
    "pread",
    "softfault",
];
/// Colours for others (policies, files), by order of appearance: `other-0` and on in `style.css`.
const OTHERS: usize = 5;

/// The engines of a page, in order of appearance. All fields immutable.
pub struct Engines(Vec<String>);

impl Engines {
    /// The engines that `on` names.
    pub fn of<'a>(on: impl Iterator<Item = &'a str>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for on in on {
            if !names.iter().any(|name| name == on) {
                names.push(on.into());
            }
        }
        Self(names)
    }

    /// All of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The class that colours it.
    pub fn class(&self, on: &str) -> String {
        match KNOWN.contains(&on) {
            true => format!("e-{on}"),
            false => format!("e-other-{}", self.other(on) % OTHERS),
        }
    }

    /// Its mark, a shape of its own: colour alone tells nobody anything.
    pub fn mark(&self, on: &str) -> Markup {
        let shape = match KNOWN.iter().position(|known| *known == on) {
            Some(known) => known,
            None => KNOWN.len() + self.other(on) % OTHERS,
        };
        let path = [
            // kernel: square; kernel-random: triangle; kernel-sequential: triangle on its head
            "M1.5 1.5h9v9h-9z",
            "M6 .8l5.6 10H.4z",
            "M6 11.2l5.6-10H.4z",
            // pread: diamond; softfault: circle
            "M6 0l6 6-6 6-6-6z",
            "M6 .5a5.5 5.5 0 1 0 .01 0z",
            // others: cross, ring, bar, hour-glass, hexagon
            "M4 0h4v4h4v4H8v4H4V8H0V4h4z",
            "M6 .5a5.5 5.5 0 1 0 .01 0zM6 3.4a2.6 2.6 0 1 1-.01 0z",
            "M0 4h12v4H0z",
            "M0 0h12L7.5 6l4.5 6H0l4.5-6z",
            "M3 .8h6L12 6 9 11.2H3L0 6z",
        ][shape];
        html! {
            svg class={ "mark " (self.class(on)) } viewBox="0 0 12 12" aria-hidden="true" {
                path d=(path) fill-rule="evenodd" {}
            }
        }
    }

    /// Its mark and its name, which breaks before a policy and not within one.
    pub fn name(&self, on: &str) -> Markup {
        html! {
            (self.mark(on))
            span { @for part in on.split_inclusive([':', '+']) { span.part { (part) } } }
        }
    }

    /// How many unknown engines came before `on`.
    fn other(&self, on: &str) -> usize {
        let others = self.names().filter(|name| !KNOWN.contains(name));
        others.take_while(|name| *name != on).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const STYLE: &str = include_str!("style.css");

    /// The custom properties of each `:root` block: light, then dark.
    fn schemes() -> Vec<BTreeMap<&'static str, &'static str>> {
        let blocks = STYLE.split(":root {").skip(1);
        let properties = |block: &'static str| {
            let inside = block.split('}').next().unwrap();
            let of = |line: &'static str| line.trim().trim_end_matches(';').split_once(": ");
            inside.lines().filter_map(of).collect()
        };
        blocks.map(properties).collect()
    }

    /// Relative luminance as WCAG defines it.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("#rrggbb");
            let value = f64::from(value) / 255.0;
            match value <= 0.04045 {
                true => value / 12.92,
                false => ((value + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn every_colour_is_legible_in_light_and_in_dark() {
        let schemes = schemes();
        assert_eq!(schemes.len(), 2);
        for colours in schemes {
            for ground in ["--ground", "--card"] {
                let on = |name: &str| contrast(colours[name], colours[ground]);
                for text in ["--ink", "--soft"] {
                    assert!(on(text) >= 4.5, "{text} on {ground}: {:.2}", on(text));
                }
                let engines = KNOWN.map(|name| format!("--{name}"));
                let others = (0..OTHERS).map(|at| format!("--other-{at}"));
                for name in engines.into_iter().chain(others) {
                    assert!(on(&name) >= 3.0, "{name} on {ground}: {:.2}", on(&name));
                    let used = format!("var({name})");
                    assert!(STYLE.contains(&used), "{used} colours nothing");
                }
            }
        }
    }

    #[test]
    fn an_engine_looks_the_same_on_every_page() {
        let alone = Engines::of(["softfault"].into_iter());
        let late = Engines::of(["x:a", "pread", "x:b", "softfault", "x:b"].into_iter());
        assert_eq!(alone.class("softfault"), late.class("softfault"));
        assert_eq!(
            alone.mark("softfault").into_string(),
            late.mark("softfault").into_string()
        );
        assert_eq!(
            (late.class("x:a"), late.class("x:b")),
            ("e-other-0".into(), "e-other-1".into())
        );
    }
}
