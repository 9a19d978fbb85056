//! Seeds under which something was found. Each scenario runs its own first.
//!
//! A seed means the same schedule only as long as the engine makes the same
//! accesses: what was found here is worth a directed test beside it.

/// The scenario, the seed, and what it found.
const FOUND: &[(&str, u64, &str)] = &[
    (
        "anonymous_memory_runs_out",
        64_554_969_184_874,
        "this world: sleeping threads woke for no reason, again and again, and no time passed \
         for the one that waited for memory",
    ),
    (
        "fault_against_unmap",
        112_816_470_828_494,
        "the statistics: `retry_io_miss` counts a retry whose address shows another page by then",
    ),
    (
        "first_fault_against_truncate",
        229_218_459_263_103,
        "the engine: a fault in a hole that had seen the old end put its folio into the index \
         after truncate had found none, and the page stayed mapped past the end (schedule 224; \
         a model of loom's found it too)",
    ),
];

/// Those of a scenario.
pub fn seeds(scenario: &str) -> Vec<u64> {
    let found = FOUND.iter().filter(|(name, _, _)| *name == scenario);
    found.map(|(_, seed, _)| *seed).collect()
}

/// Of a scenario that was renamed, the seeds would never be run again.
#[test]
fn every_seed_has_its_scenario() {
    const SOURCES: &[&str] = &[
        include_str!("budget.rs"),
        include_str!("truncate.rs"),
        include_str!("unmap.rs"),
    ];
    for (name, seed, _) in FOUND {
        let test = format!("fn {name}()");
        let is_there = SOURCES.iter().any(|source| source.contains(&test));
        assert!(is_there, "no scenario {name} for seed {seed}");
    }
}
