//! Environment variables: one page has all of them.

use std::collections::BTreeSet;

use crate::source::Sources;
use crate::{Broken, Rule};

const DOCUMENT: &str = "docs/environment.md";
const PREFIX: &str = "SOFTFAULT_";

pub const RULE: Rule = Rule {
    name: "variables-are-documented",
    why: "a variable that no page has is found by reading the source, and one that is gone is set in vain",
    check: variables,
    bad: &[
        // A variable that is not documented: of Rust, of Python, of a script, of a document.
        &[
            (DOCUMENT, ""),
            ("crates/a/src/b.rs", "var(\"SOFTFAULT_A\")"),
        ],
        &[(DOCUMENT, ""), ("python/a.py", "get(\"SOFTFAULT_A\", 1)")],
        &[(DOCUMENT, ""), (".ci/run", "export SOFTFAULT_A=1")],
        &[(DOCUMENT, ""), ("docs/b.md", "`SOFTFAULT_A=1`")],
        // One that is gone, or has another name.
        &[(DOCUMENT, "| `SOFTFAULT_A` | x |")],
        &[
            (DOCUMENT, "| `SOFTFAULT_A_B` | x |"),
            ("crates/a/src/b.rs", "var(\"SOFTFAULT_A\")"),
        ],
    ],
    good: &[
        (
            DOCUMENT,
            "| `SOFTFAULT_A`, `SOFTFAULT_B_C` | x |\nA name that begins with `SOFTFAULT_`.",
        ),
        (
            "crates/a/src/b.rs",
            "const A: &str = \"SOFTFAULT_A\"; \"SOFTFAULT_\" SOFTFAULT_CONST",
        ),
        ("justfile", "b:\n    SOFTFAULT_B_C=1 true"),
        ("docs/b.md", "`SOFTFAULT_CONST`"),
        ("crates/a/src/a.h", "#define SOFTFAULT_CONST"),
    ],
};

/// Names in tests that are no variables: typing errors, and names that nobody knows.
const WRONG: [&str; 6] = [
    "SOFTFAULT_FOO",
    "SOFTFAULT_MEMROY",
    "SOFTFAULT_MINSIZE",
    "SOFTFAULT_RUN_MEMORY",
    "SOFTFAULT_RUN_STAT",
    "SOFTFAULT_WEATHER",
];

fn variables(sources: &Sources) -> Vec<Broken> {
    let Some(document) = sources.text(DOCUMENT) else {
        return vec![format!("there is no {DOCUMENT}")];
    };
    let documented: BTreeSet<&str> = names(document)
        .filter(|(before, _, behind)| *before == Some('`') && *behind == Some('`'))
        .map(|(_, name, _)| name)
        .collect();
    let mut broken = Vec::new();
    let mut there = BTreeSet::new();
    for (path, text) in sources.all() {
        if path.starts_with("crates/house-rules/") {
            continue;
        }
        for (before, name, behind) in names(text) {
            let is_quoted = before == Some('"') && behind == Some('"');
            if !(is_quoted || behind == Some('=')) || WRONG.contains(&name) {
                continue;
            }
            // A document may show a variable, and is no place where one is read.
            if !path.ends_with(".md") {
                there.insert(name);
            }
            if !documented.contains(name) {
                broken.push(format!("{DOCUMENT} lacks {name}, of {path}"));
            }
        }
    }
    let gone = documented.difference(&there);
    broken.extend(gone.map(|name| format!("{DOCUMENT} has {name}, which nothing reads")));
    broken
}

/// Names with our prefix, each with the characters around it.
fn names(text: &str) -> impl Iterator<Item = (Option<char>, &str, Option<char>)> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.match_indices(PREFIX).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        let rest = &text[at..];
        let name = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        let is_whole = name.len() > PREFIX.len() && !before.is_some_and(is_part);
        is_whole.then(|| (before, name, rest[name.len()..].chars().next()))
    })
}
