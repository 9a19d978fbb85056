//! Seeds under which something was found. Each scenario runs its own first.
//!
//! A seed means the same schedule only as long as the engine makes the same
//! accesses: a finding here is worth a directed test beside it.

/// The scenario, the seed, and its finding.
const FOUND: &[(&str, u64, &str)] = &[
    (
        "first_fault_against_truncate",
        229_218_459_263_016,
        "the engine: a fault in a hole that had seen the old end put its folio into the index \
         after truncate had found none, and the page stayed mapped past the end (schedule 137; a \
         model of loom's found it too)",
    ),
    (
        "writes_on_both_sides_of_a_slot",
        129_756_071_572_011,
        "the engine: reclaim said that a folio was on no list before it had taken it off; who gave \
         it up believed that, and its slot was another folio's while reclaim still counted its \
         pages (schedule 368)",
    ),
    (
        "write_against_protection_of_the_window",
        188_981_024_951_583,
        "the soft page tables: two threads protected one page, and the second, which found it protected, did not wait for \
         the cores that the first was waiting for: one wrote on, and a flush had not got that (schedule 533)",
    ),
    (
        "write_against_punch",
        9_693_204_098_597,
        "the engine: a page that was read before a hole was punched, and written to, was written back after it as a whole, \
         with what was to be gone (schedule 392)",
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
        include_str!("truncate.rs"),
        include_str!("swap_fork.rs"),
        include_str!("writable.rs"),
    ];
    for (name, seed, _) in FOUND {
        let test = format!("fn {name}()");
        let is_there = SOURCES.iter().any(|source| source.contains(&test));
        assert!(is_there, "no scenario {name} for seed {seed}");
    }
}
