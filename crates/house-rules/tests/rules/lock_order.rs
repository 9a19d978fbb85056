//! The tree of locks in ARCHITECTURE.md.

use crate::source::Sources;
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "lock-order-as-checked",
    why: "the tree of locks is what a reader goes by, and the ranks are what debug builds check: each ranked lock has a line of its \
          name in the tree, and none comes before one of a lower rank",
    check,
    bad: &[
        &[(RANKS, ORDER), (TREE, "## Lock order\n```\nouter\n```\n")],
        &[
            (RANKS, ORDER),
            (TREE, "## Lock order\n```\ninner\n  outer\n```\n"),
        ],
        // A name elsewhere is not in the tree.
        &[
            (RANKS, ORDER),
            (TREE, "inner\n## Lock order\n```\nouter\n```\ninner\n"),
        ],
    ],
    good: &[
        (RANKS, ORDER),
        (
            TREE,
            "## Lock order\n```\nbits\nouter lock   of all\n  bits\n  inner, of a part\n```\n",
        ),
    ],
};

const RANKS: &str = "crates/engine/src/lock/order.rs";
const TREE: &str = "ARCHITECTURE.md";
const ORDER: &str =
    "const NAMES: [&str; 3] = [\n    \"none\",\n    \"outer\",\n    \"inner\",\n];\n";

fn check(sources: &Sources) -> Vec<Broken> {
    let (Some(ranks), Some(document)) = (sources.text(RANKS), sources.text(TREE)) else {
        return Vec::new();
    };
    let names = between(ranks, "const NAMES", "];");
    // The first is that of locks without a rank.
    let names = names.split('"').skip(1).step_by(2).skip(1);
    let section = between(document, "## Lock order\n", "\n## ");
    let tree = between(section, "```\n", "\n```");
    let mut below = 0;
    let mut broken = Vec::new();
    for name in names {
        let is_its = |line: &str| line.trim_start().starts_with(name);
        match tree.lines().position(is_its) {
            None => broken.push(format!(
                "{TREE} has no line \"{name}\" in its tree of locks"
            )),
            Some(line) if line < below => {
                broken.push(format!("{TREE} has \"{name}\" before locks of lower ranks"));
            }
            Some(line) => below = line,
        }
    }
    broken
}

/// The text from one part to the next occurrence of another, or to the end.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or(rest, |(text, _)| text)
}
