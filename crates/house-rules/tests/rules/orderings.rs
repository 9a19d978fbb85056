//! Which memory orderings the engine may use.

use crate::source::{Sources, lines, words};
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "engine-without-seqcst",
    why: "loom takes `SeqCst` of an access for `AcqRel`: code that relies on one order of all accesses would be \
          checked for something weaker, or not at all; it has one order of fences",
    check,
    bad: &[
        &[("crates/engine/src/a.rs", "x.load(Ordering::SeqCst);")],
        &[(
            "crates/engine/src/a/b.rs",
            "use sync::atomic::Ordering::{Relaxed, SeqCst};",
        )],
        &[(
            "crates/engine/src/a.rs",
            "fence(Ordering::SeqCst); x.load(Ordering::SeqCst);",
        )],
    ],
    good: &[
        (
            "crates/engine/src/a.rs",
            "// SeqCst would do.\nx.load(Relaxed);",
        ),
        ("crates/engine/src/a.rs", "fence(Ordering::SeqCst);"),
        ("crates/engine/tests/a.rs", "x.load(SeqCst);"),
        ("crates/sync-shuttle/src/atomic.rs", "x.load(SeqCst);"),
    ],
};

fn check(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    for (path, text) in sources.rust_below("crates/engine/src/") {
        for (place, line) in lines(path, text) {
            let accesses = line.replace("fence(Ordering::SeqCst)", "");
            if words(&accesses).any(|word| word == "SeqCst") {
                broken.push(format!("{place} uses SeqCst"));
            }
        }
    }
    broken
}
