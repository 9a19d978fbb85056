//! The house rules. Each has a name, its reason, and samples that it must
//! reject: a rule that cannot fail is none.
//!
//! They look at the workspace's files and not at git, so that a file is judged
//! before it is committed.

mod dead_files;
mod documented_commands;
mod documents;
mod facade;
mod layers;
mod lock_order;
mod manifests;
mod mapping_calls;
mod orderings;
mod shared_bytes;
mod skips;
mod source;
mod text;
mod unsafe_code;
mod variables;

use source::Sources;

/// Where a rule is broken, and how.
type Broken = String;

/// A rule.
struct Rule {
    /// Its name in a report.
    name: &'static str,
    /// Why we have it.
    why: &'static str,
    /// Finds violations.
    check: fn(&Sources) -> Vec<Broken>,
    /// Workspaces that break it, as paths and texts.
    bad: &'static [&'static [(&'static str, &'static str)]],
    /// A workspace that looks like breaking it and does not.
    good: &'static [(&'static str, &'static str)],
}

/// All of them.
const RULES: &[Rule] = &[
    facade::RULE,
    orderings::RULE,
    shared_bytes::RULE,
    unsafe_code::SAYS_WHY,
    unsafe_code::IN_FEW_FILES,
    dead_files::RULE,
    text::SMALL_FILES,
    text::FINISHED,
    text::TELLING_NAMES,
    manifests::RULE,
    mapping_calls::RULE,
    layers::RULE,
    lock_order::RULE,
    documents::PATHS,
    documents::COUNTS,
    documented_commands::RULE,
    skips::RULE,
    variables::RULE,
];

#[test]
fn the_workspace_keeps_the_rules() {
    let sources = Sources::of_workspace();
    // A walk that finds nothing would keep every rule.
    assert!(sources.text("crates/engine/src/lib.rs").is_some());
    let broken: Vec<String> = (RULES.iter())
        .flat_map(|rule| {
            let broken = (rule.check)(&sources).into_iter();
            broken.map(|what| format!("{}: {what}\n    ({})", rule.name, rule.why))
        })
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_rule_rejects_its_bad_samples() {
    for rule in RULES {
        assert!(!rule.bad.is_empty(), "{} has no bad sample", rule.name);
        for sample in rule.bad {
            let broken = (rule.check)(&Sources::of_sample(sample));
            assert!(!broken.is_empty(), "{} accepts {sample:?}", rule.name);
        }
    }
}

#[test]
fn every_rule_accepts_its_good_sample() {
    for rule in RULES {
        let broken = (rule.check)(&Sources::of_sample(rule.good));
        assert!(broken.is_empty(), "{} rejects {broken:?}", rule.name);
    }
}
