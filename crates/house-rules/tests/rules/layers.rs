//! Which module of a crate imports which: as ARCHITECTURE draws it, and without a great circle.
//!
//! A module is a file or a folder right below `src`. A document draws a crate's modules in a
//! block of its own:
//!
//! ````text
//! ```layers engine
//! page
//! policy: page
//! anon, cache: page policy
//! ```
//! ````
//!
//! From the ground up, a line has a module, or up to three that import each other, and their
//! imports: modules of lines above it.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Sources, code, words};
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "layers",
    why: "a reader of a module reads its imports: where modules import each other in a circle, \
          the least of them is all of them",
    check,
    bad: &[
        // A circle of four.
        &[
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", "use super::c::{C, D};"),
            ("crates/x/src/c/mod.rs", "fn f() { crate::d::g() }"),
            ("crates/x/src/d.rs", "use crate::{e, a::A};"),
            ("crates/x/src/e.rs", ""),
        ],
        // Not drawn.
        &[
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", ""),
            ("A.md", "```layers x\nb\na\n```"),
        ],
        // Drawn, and not there.
        &[
            ("crates/x/src/a.rs", ""),
            ("crates/x/src/b.rs", ""),
            ("A.md", "```layers x\nb\na: b\n```"),
        ],
        // From below.
        &[
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", ""),
            ("A.md", "```layers x\na: b\nb\n```"),
        ],
        // A module too few.
        &[
            ("crates/x/src/a.rs", ""),
            ("crates/x/src/b.rs", ""),
            ("A.md", "```layers x\na\n```"),
        ],
        // By a name that the crate's face has from it.
        &[
            ("crates/x/src/lib.rs", "pub use b::{B, C as D};"),
            ("crates/x/src/a.rs", "use crate::D;"),
            ("crates/x/src/b.rs", ""),
            ("A.md", "```layers x\nb\na\n```"),
        ],
    ],
    good: &[
        ("crates/x/src/lib.rs", "mod a; pub use a::f as g;"),
        ("crates/x/src/a.rs", "use super::b; // use crate::c"),
        (
            "crates/x/src/b.rs",
            "use crate::c;\n#[cfg(test)]\nmod tests {\n  use crate::a;\n}",
        ),
        (
            "crates/x/src/c/mod.rs",
            "use crate::b; mod d; fn f() { \"crate::a\"; }",
        ),
        ("crates/x/src/c/d.rs", "use super::super::b; use super::f;"),
        ("crates/x/src/c/tests.rs", "use crate::a;"),
        ("A.md", "```layers x\nb, c\na: b\n```"),
    ],
};

/// Modules that may import each other.
const CIRCLE: usize = 3;

/// The imports of each module of a crate.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn check(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut crates: BTreeMap<String, Imports> = BTreeMap::new();
    let own = |path: &str| {
        path.strip_prefix("crates/")
            .and_then(|rest| rest.split_once("/src/"))
            .map(|(name, _)| name.to_owned())
    };
    for name in sources.rust().filter_map(|(path, _)| own(path)) {
        crates.entry(name).or_default();
    }
    for (name, imports) in &mut crates {
        *imports = imports_of(sources, name);
        for circle in circles(imports)
            .iter()
            .filter(|circle| circle.len() > CIRCLE)
        {
            broken.push(format!(
                "{name} has a circle of {}: {}",
                circle.len(),
                circle.join(", ")
            ));
        }
    }
    for (path, text) in sources.documents() {
        for (name, lines) in drawings(text) {
            match crates.get(&name) {
                None => broken.push(format!("{path} draws {name}, which is no crate")),
                Some(imports) => {
                    let wrong = compare(imports, &lines);
                    broken.extend(wrong.map(|what| format!("{path} draws {name}: {what}")));
                }
            }
        }
    }
    broken
}

/// The crates that a document draws, with the lines.
fn drawings(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = text.lines();
    while let Some(line) = rest.next() {
        if let Some(name) = line.strip_prefix("```layers ") {
            let lines = rest.by_ref().take_while(|line| !line.starts_with("```"));
            found.push((name.trim().to_owned(), lines.map(str::to_owned).collect()));
        }
    }
    found
}

fn compare<'a>(imports: &'a Imports, lines: &[String]) -> impl Iterator<Item = String> + 'a {
    let mut wrong = Vec::new();
    let mut drawn: BTreeSet<String> = BTreeSet::new();
    for line in lines {
        let (group, below) = line.split_once(':').unwrap_or((line, ""));
        let group: BTreeSet<String> = words(group).map(str::to_owned).collect();
        let below: BTreeSet<String> = words(below).map(str::to_owned).collect();
        if group.len() > CIRCLE {
            wrong.push(format!("more than {CIRCLE} modules in a line: {line}"));
        }
        for name in below.difference(&drawn) {
            wrong.push(format!("{name} is not below: {line}"));
        }
        let none = BTreeSet::new();
        let all = group
            .iter()
            .flat_map(|name| imports.get(name).unwrap_or(&none));
        let all: BTreeSet<String> = all.filter(|name| !group.contains(*name)).cloned().collect();
        for name in all.symmetric_difference(&below) {
            let how = match all.contains(name) {
                true => "is imported and not drawn",
                false => "is drawn and not imported",
            };
            wrong.push(format!("{name} {how}: {line}"));
        }
        drawn.extend(group);
    }
    for name in drawn.symmetric_difference(&imports.keys().cloned().collect()) {
        wrong.push(format!("{name} is drawn alone, or not at all"));
    }
    wrong.into_iter()
}

fn imports_of(sources: &Sources, name: &str) -> Imports {
    let src = format!("crates/{name}/src/");
    let files: Vec<(Vec<&str>, String)> = (sources.rust())
        .filter_map(|(path, text)| Some((path.strip_prefix(&src)?, text)))
        .map(|(path, text)| (path.split('/').collect(), code(text)))
        .collect();
    let is_test = |path: &[&str]| {
        path.iter()
            .any(|part| matches!(*part, "tests" | "tests.rs"))
    };
    let is_root = |path: &[&str]| matches!(path, ["lib.rs" | "main.rs"]);
    let is_module = |path: &[&str]| !is_root(path) && path[0] != "bin" && !is_test(path);
    let mut imports: Imports = (files.iter())
        .filter(|(path, _)| is_module(path))
        .map(|(path, _)| (module(path), BTreeSet::new()))
        .collect();
    // The public items of each.
    let mut face: BTreeMap<String, String> = BTreeMap::new();
    for (_, text) in files.iter().filter(|(path, _)| is_root(path)) {
        for path in text.split(';').filter_map(|part| part.split_once("use ")) {
            for path in flat(path.1) {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                if let (Some(&first), Some(&last)) = (path.first(), path.last())
                    && imports.contains_key(first)
                {
                    face.insert(last.to_owned(), first.to_owned());
                }
            }
        }
    }
    for (path, text) in files.iter().filter(|(path, _)| is_module(path)) {
        let own = module(path);
        // Where `super` leads to.
        let depth = path.len() - usize::from(path.last() == Some(&"mod.rs"));
        let text = match text.find("#[cfg(test)]\nmod ") {
            Some(at)
                if text[at..]
                    .lines()
                    .nth(1)
                    .is_some_and(|line| line.ends_with('{')) =>
            {
                &text[..at]
            }
            _ => text,
        };
        let named = named_from_the_root(text, depth);
        let known: Vec<String> = (named.into_iter())
            .filter_map(|name| match imports.contains_key(&name) {
                true => Some(name),
                false => face.get(&name).cloned(),
            })
            .filter(|name| *name != own)
            .collect();
        imports.entry(own).or_default().extend(known);
    }
    imports
}

/// The module right below `src` that a file is in.
fn module(path: &[&str]) -> String {
    path[0].trim_end_matches(".rs").to_owned()
}

/// The names that follow the crate's root in code of a file so deep below `src`.
fn named_from_the_root(text: &str, depth: usize) -> Vec<String> {
    let mut named = Vec::new();
    let up = "super::".repeat(depth);
    for root in ["crate::", &up] {
        for (at, _) in text.match_indices(root) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let after = &text[at + root.len()..];
            if after.starts_with("super::") {
                continue;
            }
            named.extend(
                flat(after)
                    .into_iter()
                    .filter_map(|path| path.into_iter().next()),
            );
        }
    }
    named
}

/// The paths at the front of a text, a group of imports being several. The last name of each
/// is the one that it gets (`as`).
fn flat(text: &str) -> Vec<Vec<String>> {
    let Some(inner) = text.trim_start().strip_prefix('{') else {
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        let (path, rest) = text.trim_start().split_at(end.unwrap_or(text.len()));
        let mut path: Vec<String> = words(path).map(str::to_owned).collect();
        if rest.starts_with('{') {
            let below = flat(rest).into_iter();
            return below
                .map(|below| path.iter().cloned().chain(below).collect())
                .collect();
        }
        if let Some(name) = rest.trim_start().strip_prefix("as ") {
            path.extend(words(name).next().map(str::to_owned));
        }
        return vec![path];
    };
    let (mut depth, mut from, mut parts) = (1, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && c == ',' {
            parts.push(inner[from..at].trim());
            from = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.flat_map(flat).collect()
}

/// The modules that import each other, a circle each.
fn circles(imports: &Imports) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = (imports.keys())
        .map(|name| (&name[..], reach(imports, name)))
        .collect();
    let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (name, far) in &reached {
        let back = far.iter().filter(|other| reached[*other].contains(name));
        circles.insert(back.copied().collect());
    }
    circles.into_iter().collect()
}

/// All that a module comes to by imports.
fn reach<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = imports[from].iter().map(String::as_str).collect();
    while let Some(name) = next.pop() {
        if found.insert(name) {
            next.extend(imports[name].iter().map(String::as_str));
        }
    }
    found
}
