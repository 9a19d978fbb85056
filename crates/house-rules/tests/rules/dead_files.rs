//! Files that nothing compiles.

use std::collections::BTreeSet;

use crate::source::{Sources, code};
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "no-dead-files",
    why: "a file that is no module is neither compiled nor tested, and rots",
    check,
    bad: &[
        &[
            ("crates/a/src/lib.rs", "mod b;"),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/c.rs", ""),
        ],
        &[
            ("crates/a/src/lib.rs", "// mod b;"),
            ("crates/a/src/b.rs", ""),
        ],
        // `c` is a module of `b`, and lives in its folder.
        &[
            ("crates/a/src/lib.rs", "mod b;"),
            ("crates/a/src/b.rs", "mod c;"),
            ("crates/a/src/c.rs", ""),
        ],
        &[
            ("crates/a/tests/t.rs", ""),
            ("crates/a/tests/shared/mod.rs", ""),
        ],
    ],
    good: &[
        (
            "crates/a/src/lib.rs",
            "pub mod b;\npub(crate) mod d;\nmod e { }",
        ),
        ("crates/a/src/b/mod.rs", "mod c;"),
        ("crates/a/src/b/c.rs", ""),
        ("crates/a/src/d.rs", "mod f;"),
        ("crates/a/src/d/f.rs", ""),
        ("crates/a/src/bin/tool.rs", ""),
        ("crates/a/tests/t.rs", "mod shared;"),
        ("crates/a/tests/shared/mod.rs", ""),
        ("crates/a/tests/big/main.rs", "mod part;"),
        ("crates/a/tests/big/part.rs", ""),
        ("crates/a/build.rs", ""),
    ],
};

fn check(sources: &Sources) -> Vec<Broken> {
    let mut alive = BTreeSet::new();
    let mut look_at: Vec<String> = (sources.rust())
        .filter(|(path, _)| is_root(path))
        .map(|(path, _)| path.to_owned())
        .collect();
    while let Some(path) = look_at.pop() {
        let text = sources.text(&path);
        let Some(text) = text.filter(|_| alive.insert(path.clone())) else {
            continue;
        };
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let folder = if is_root(&path) || name == "mod.rs" {
            folder.to_owned()
        } else {
            path.trim_end_matches(".rs").to_owned()
        };
        for module in modules(&code(text)) {
            look_at.push(format!("{folder}/{module}.rs"));
            look_at.push(format!("{folder}/{module}/mod.rs"));
        }
    }
    (sources.rust())
        .filter(|(path, _)| !alive.contains(*path))
        .map(|(path, _)| format!("{path} is no module of any crate"))
        .collect()
}

/// True if cargo compiles the file by itself.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let [.., folder, name] = parts[..] else {
        return true;
    };
    match name {
        "build.rs" => parts.len() == 3,
        "lib.rs" | "main.rs" if folder == "src" => true,
        _ => {
            const TARGETS: [&str; 4] = ["bin", "tests", "examples", "benches"];
            // crates/a/tests/t.rs, crates/a/src/bin/t.rs, .../tests/big/main.rs
            let above = parts.len().checked_sub(3).map(|at| parts[at]);
            TARGETS.contains(&folder)
                || name == "main.rs" && above.is_some_and(|above| TARGETS.contains(&above))
        }
    }
}

/// Names of the modules that have a file of their own.
fn modules(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for statement in code.split_inclusive([';', '{', '}']) {
        let Some(statement) = statement.strip_suffix(';') else {
            continue;
        };
        let mut words = statement.split_whitespace().rev();
        if let (Some(name), Some("mod")) = (words.next(), words.next()) {
            names.push(name.to_owned());
        }
    }
    names
}
