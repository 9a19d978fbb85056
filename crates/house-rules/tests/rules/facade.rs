//! Names that the engine may not use.

use crate::source::{Sources, code, words};
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "engine-through-the-facade",
    why: "the engine is compiled against other worlds too: code that orders memory, waits, starts \
          threads or calls the system is named by `sync`, or the model checker does not see it",
    check,
    bad: &[
        &[("crates/engine/src/a.rs", "use std::sync::Arc;")],
        &[("crates/engine/src/a.rs", "std :: thread::spawn(f);")],
        &[("crates/engine/src/a.rs", "use core::sync::atomic::fence;")],
        &[(
            "crates/engine/src/a.rs",
            "use std::{\n  fmt,\n  sync::Arc,\n};",
        )],
        &[("crates/engine/src/a.rs", "use std as system;")],
        &[("crates/engine/src/a.rs", "libc::getpid()")],
        &[("crates/engine/src/a.rs", "use core::cell::UnsafeCell;")],
        &[("crates/engine/src/a.rs", "std::thread_local!()")],
    ],
    good: &[
        (
            "crates/engine/src/a.rs",
            "// not std::sync\nuse sync::{Arc, thread};\nuse core::{cell::Cell, fmt};\nlet sync = core::mem::take(&mut thread) as u8;",
        ),
        ("crates/softfault/src/a.rs", "use std::sync::Arc;"),
    ],
};

/// Paths that may not follow `std::` or `core::`.
const BANNED: &[&str] = &["sync", "thread", "thread_local", "UnsafeCell"];

fn check(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    for (path, text) in sources.rust_below("crates/engine/src/") {
        let code = code(text);
        if words(&code).any(|word| word == "libc") {
            broken.push(format!("{path} names libc"));
        }
        // One statement at a time, in which a group of imports is whole.
        for statement in code.split(';') {
            let packed: String = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            let packed = packed.replace(" :: ", "::").replace(":: ", "::");
            for root in ["std", "core"] {
                if packed.contains(&format!("use {root} as ")) {
                    broken.push(format!("{path} renames {root}"));
                }
                for named in named_below(&packed, root) {
                    if words(&named).any(|word| BANNED.contains(&word)) {
                        broken.push(format!("{path} names {root}::{named}"));
                    }
                }
            }
        }
    }
    broken
}

/// Every path, or group of paths, that follows `root::`.
fn named_below(packed: &str, root: &str) -> Vec<String> {
    let start = format!("{root}::");
    let mut named = Vec::new();
    for (at, _) in packed.match_indices(&start) {
        let before = packed[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let mut depth = 0;
        let path = packed[at + start.len()..].chars().take_while(|&c| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth > 0 || c.is_alphanumeric() || "_:}".contains(c)
        });
        named.push(path.collect());
    }
    named
}
