//! Tests that do not run: each says for lack of what.

use crate::source::Sources;
use crate::{Broken, Rule};

/// The file that lists the needs.
const LIST: &str = "crates/skip/src/lib.rs";

pub const RULE: Rule = Rule {
    name: "needs-of-tests-are-known",
    why: "a need that is not in the list is found on the first machine that lacks it: there the test fails, and does not skip",
    check: needs,
    bad: &[
        &[
            (LIST, "    \"root\", // calls\n];"),
            ("crates/a/tests/b.rs", "skipped(\"roof\", why)"),
        ],
        &[
            (LIST, "    \"root\", // calls\n];"),
            ("crates/a/tests/b.rs", "skipped(\n    \"roof\",\n    why)"),
        ],
    ],
    good: &[
        (LIST, "    \"root\", // calls\n];"),
        (
            "crates/a/tests/b.rs",
            "skipped(\"root\", why); skipped(\n    \"root\",\n    why); skipped(need, why)",
        ),
    ],
};

fn needs(sources: &Sources) -> Vec<Broken> {
    let list = sources.text(LIST).unwrap_or_default();
    let is_known = |need: &str| {
        list.contains(&format!("\n    \"{need}\","))
            || list.starts_with(&format!("    \"{need}\","))
    };
    let mut broken = Vec::new();
    for (path, text) in sources.all() {
        if path == LIST || path.starts_with("crates/house-rules/") {
            continue;
        }
        for behind in text.split("skipped(").skip(1) {
            let literal = behind.trim_start().strip_prefix('"');
            let need = literal.and_then(|literal| literal.split_once('"'));
            if let Some((need, _)) = need
                && !is_known(need)
            {
                broken.push(format!("{path}: {need} is not in {LIST}"));
            }
        }
    }
    broken
}
