//! Each engine's colour and mark, the same on every page.

use crate::results::names;
use maud::{Markup, html};

/// The engines everyone has; their classes in `style.css` bear these names.
const KNOWN: [&str; 7] = [
    "kernel",
    "kernel-random",
    "kernel-sequential",
    "pread",
    "softfault",
    "soft",
    "direct",
];
/// Colours for all others (policies, files): `other-0` and on in `style.css`.
const OTHERS: usize = 8;
/// Shapes for them. Eight colours and nine shapes: the first 72 places differ in one or both.
const SHAPES: usize = 9;
/// Those that the documents are about have places of their own; the engines of one chart have colours of
/// its own.
const PLACES: [&str; 11] = [
    "softfault:miss=baseline",
    "softfault:miss=p1",
    "softfault:miss=p2",
    "softfault:miss=both",
    "softfault:retry=mmap-lock+pin=no",
    "softfault:pin=no",
    "softfault:retry=held+pin=no",
    "softfault:retry=held",
    "softfault:retry=mmap-lock",
    "softfault:lock=rwsem",
    "soft:lock=rwsem",
];

/// The engines of a page, in order of appearance. All fields immutable.
pub struct Engines {
    names: Vec<String>,
    /// The place of each that is not `KNOWN`.
    places: Vec<Option<usize>>,
}

impl Engines {
    /// The engines that `on` names.
    pub fn of<'a>(on: impl Iterator<Item = &'a str>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for on in on {
            if !names.iter().any(|name| name == on) {
                names.push(on.into());
            }
        }
        let own = |name: &String| PLACES.iter().position(|place| names::same(place, name));
        let mut places: Vec<Option<usize>> = names.iter().map(own).collect();
        let mut taken: Vec<usize> = places.iter().copied().flatten().collect();
        for (name, place) in names.iter().zip(&mut places) {
            if place.is_none() && !KNOWN.contains(&&name[..]) {
                // The others' places follow from their names, unless another has it.
                let first = PLACES.len() + sum(name) % (2 * OTHERS);
                let free = (first..).find(|place| !taken.contains(place));
                let free = free.expect("there is no end of places");
                taken.push(free);
                *place = Some(free);
            }
        }
        Self { names, places }
    }

    /// All of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The class that colours it.
    pub fn class(&self, on: &str) -> String {
        match self.place(on) {
            None => format!("e-{on}"),
            Some(place) => format!("e-other-{}", place % OTHERS),
        }
    }

    /// Its mark, a shape of its own: colour alone tells nobody anything.
    pub fn mark(&self, on: &str) -> Markup {
        let known = KNOWN.iter().position(|known| *known == on).unwrap_or(0);
        let shape = match self.place(on) {
            None => known,
            Some(place) => KNOWN.len() + place % SHAPES,
        };
        let path = [
            // kernel: square; kernel-random: triangle; kernel-sequential: triangle on its head
            "M1.5 1.5h9v9h-9z",
            "M6 .8l5.6 10H.4z",
            "M6 11.2l5.6-10H.4z",
            // pread: diamond; softfault: circle; soft: ring
            "M6 0l6 6-6 6-6-6z",
            "M6 .5a5.5 5.5 0 1 0 .01 0z",
            "M6 .5a5.5 5.5 0 1 0 .01 0zM6 3.4a2.6 2.6 0 1 1-.01 0z",
            // direct: chevron
            "M0 1.5L6 5l6-3.5v4.2L6 10.5 0 5.7z",
            // others: cross, bar, hour-glass, hexagon, frame, oblique cross, pillar, bow tie, drop
            "M4 0h4v4h4v4H8v4H4V8H0V4h4z",
            "M0 4h12v4H0z",
            "M0 0h12L7.5 6l4.5 6H0l4.5-6z",
            "M3 .8h6L12 6 9 11.2H3L0 6z",
            "M.5.5h11v11H.5zM3.5 3.5v5h5v-5z",
            "M2.5 0L6 3.5 9.5 0 12 2.5 8.5 6 12 9.5 9.5 12 6 8.5 2.5 12 0 9.5 3.5 6 0 2.5z",
            "M4 0h4v12H4z",
            "M0 0l6 4.5L12 0v12L6 7.5 0 12z",
            "M6 0l4 5.5a4.6 4.6 0 1 1-8 0z",
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

    /// The place of one that is not `KNOWN`.
    fn place(&self, on: &str) -> Option<usize> {
        let at = self.names().position(|name| name == on)?;
        self.places[at]
    }
}

/// A number that follows from a name alone.
fn sum(name: &str) -> usize {
    let step = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(byte.into());
    name.bytes().fold(7, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

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
                let engines = KNOWN.map(|name| match name {
                    // `--soft` is the colour of text that is not loud.
                    "soft" => "--soft-engine".into(),
                    _ => format!("--{name}"),
                });
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
        let p1 = "softfault:miss=p1";
        let more = Engines::of([&PLACES[..], &KNOWN].concat().into_iter());
        assert_eq!(Engines::of([p1].into_iter()).class(p1), more.class(p1));
        assert_eq!(
            late.class("x:a"),
            Engines::of(["x:a"].into_iter()).class("x:a")
        );
    }

    #[test]
    fn many_engines_differ_in_colour_or_mark_and_a_document_in_colour() {
        let others: Vec<String> = (0..20).map(|n| format!("softfault (file {n})")).collect();
        let others = others.iter().map(String::as_str);
        let engines = Engines::of(KNOWN.into_iter().chain(PLACES).chain(others));
        let looks: BTreeSet<String> = (engines.names())
            .map(|name| engines.mark(name).into_string())
            .collect();
        assert_eq!(looks.len(), engines.names().count());
        for family in [&PLACES[..4], &PLACES[4..8], &PLACES[9..], &KNOWN] {
            let colours: BTreeSet<String> = family.iter().map(|on| engines.class(on)).collect();
            assert_eq!(colours.len(), family.len(), "{family:?}");
        }
    }
}
