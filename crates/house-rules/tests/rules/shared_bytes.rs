//! Bytes that others may write at the same time.

use crate::source::{Sources, lines};
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "shared-bytes-by-words",
    why: "atomics of different sizes must not race on the same bytes: code that reads or writes memory that \
          others have too does it by `sync::bytes`, in whole words",
    check,
    bad: &[
        &[(
            "crates/softfault/src/a.rs",
            "unsafe { (*(addr as *const AtomicU8)).load(Relaxed) };",
        )],
        &[(
            "crates/softfault/src/a/b.rs",
            "unsafe { AtomicU64::from_ptr(addr as *mut u64) };",
        )],
        &[(
            "crates/softfault/src/a.rs",
            "let word = start.cast::<AtomicU32>();",
        )],
    ],
    good: &[
        (
            "crates/softfault/src/a.rs",
            "// as *const AtomicU8\nlet count = AtomicU8::new(1);",
        ),
        (
            "crates/softfault/src/a/tests/b.rs",
            "unsafe { AtomicU64::from_ptr(addr) };",
        ),
        (
            "crates/sync-std/src/bytes.rs",
            "unsafe { AtomicU64::from_ptr(addr) };",
        ),
    ],
};

fn check(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    for (path, text) in sources.rust_below("crates/softfault/src/") {
        if path.contains("/tests/") {
            continue;
        }
        for (place, line) in lines(path, text) {
            let of_address = ["as *const Atomic", "as *mut Atomic", "cast::<Atomic"];
            let from_ptr = line.contains("Atomic") && line.contains("::from_ptr");
            if from_ptr || of_address.iter().any(|cast| line.contains(cast)) {
                broken.push(format!("{place} makes an atomic of an address"));
            }
        }
    }
    broken
}
