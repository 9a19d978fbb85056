//! Calls on taken memory for which the kernel refuses new mappings: `refused.c`.

use crate::same_case;

/// More than the budget, which is less than is mapped.
const BYTES: usize = 40 << 20;

fn same(case: &str) {
    same_case("refused.c", case, (Some(BYTES), "200M"), |stats, how| {
        assert!(stats.taken() > 0, "{how}");
    });
}

/// Memory that the program maps there is its own: nothing of it is evicted.
#[test]
fn a_mapping_over_a_part_of_a_file_s_is_refused_or_done() {
    same("fixed");
}

#[test]
fn a_mapping_that_cannot_be_handed_back_is_not_moved() {
    same("moved");
}

#[test]
fn a_mapping_that_cannot_be_handed_back_is_not_cut() {
    same("cut");
}

#[test]
fn a_part_of_anonymous_memory_is_unmapped_without_a_new_mapping() {
    same("part");
}

#[test]
fn anonymous_memory_is_unmapped_without_a_new_mapping() {
    same("whole");
}
