//! Sizes, names and unfinished work.

use crate::source::{Sources, code, lines, words};
use crate::{Broken, Rule};

pub const SMALL_FILES: Rule = Rule {
    name: "small-files",
    why: "a file is read in one go; one that is too long has two subjects",
    check: small_files,
    bad: &[&[("a.rs", LONG)]],
    good: &[("a.rs", "\n\n\n")],
};

/// The most lines of a file.
const MOST_LINES: usize = 600;

const LONG: &str = {
    const NEWLINES: [u8; MOST_LINES + 1] = [b'\n'; MOST_LINES + 1];
    match core::str::from_utf8(&NEWLINES) {
        Ok(text) => text,
        Err(_) => panic!(),
    }
};

fn small_files(sources: &Sources) -> Vec<Broken> {
    (sources.rust())
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(path, lines)| format!("{path} has {lines} lines, more than {MOST_LINES}"))
        .collect()
}

pub const FINISHED: Rule = Rule {
    name: "finished",
    why: "merged code works: a gap is an issue, not a mark in the source",
    check: finished,
    bad: &[
        &[("a.rs", "fn f() { todo!() }")],
        &[("a.rs", "fn f() { unimplemented!(\"later\") }")],
        &[("a.rs", concat!("// FIX", "ME: wrong"))],
        &[("a.rs", concat!("// XX", "X wrong"))],
        &[("a.rs", "#[test]\n#[ignore]\nfn f() {}")],
        &[("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}")],
        &[("a.rs", "#[cfg_attr(x, ignore)]\nfn f() {}")],
    ],
    good: &[(
        "a.rs",
        "// todo!() and #[ignore] in words\nlet ignore = \"XXXX\";",
    )],
};

fn finished(sources: &Sources) -> Vec<Broken> {
    // In two parts, so as not to find themselves.
    let marks = [concat!("FIX", "ME"), concat!("XX", "X")];
    let mut broken = Vec::new();
    for (path, text) in sources.rust() {
        for mark in marks {
            if words(text).any(|word| word == mark) {
                broken.push(format!("{path} says {mark}"));
            }
        }
        for (place, line) in lines(path, text) {
            for call in ["todo!", "unimplemented!"] {
                if line.contains(call) {
                    broken.push(format!("{place} says {call}"));
                }
            }
            let attribute = line.trim_start().starts_with("#[");
            if attribute && words(&line).any(|word| word == "ignore") {
                broken.push(format!("{place} ignores a test"));
            }
        }
    }
    broken
}

pub const TELLING_NAMES: Rule = Rule {
    name: "telling-names",
    why: "a name describes its contents; these names do not",
    check: telling_names,
    bad: &[
        &[("crates/a/src/utils.rs", "")],
        &[("crates/a/tests/common/mod.rs", "")],
        &[("crates/misc/src/lib.rs", "")],
        &[("crates/a/src/lib.rs", "mod helpers { }")],
    ],
    good: &[(
        "crates/a/src/lib.rs",
        "// misc\nlet common = utils(); mod a;",
    )],
};

/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &[
    "util", "utils", "common", "helper", "helpers", "misc", "stuff",
];

fn telling_names(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    for (path, text) in sources.rust() {
        let mut parts = path.trim_end_matches(".rs").split('/');
        if let Some(name) = parts.find(|part| EMPTY_NAMES.contains(part)) {
            broken.push(format!("{path} is named {name}"));
        }
        let code = code(text);
        let all: Vec<&str> = words(&code).collect();
        for pair in all.windows(2) {
            if pair[0] == "mod" && EMPTY_NAMES.contains(&pair[1]) {
                broken.push(format!("{path} has a module named {}", pair[1]));
            }
        }
    }
    broken
}
