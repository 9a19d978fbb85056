//! Calls on taken memory, for which the kernel refuses one call of softfault's: `denied.c`.

use crate::same_case;

/// More than the budget, and no whole number of pages.
const BYTES: usize = (12 << 20) + 100;

fn same(case: &str) {
    same_case("denied.c", case, (Some(BYTES), "200M"), |stats, how| {
        assert!(stats.taken() > 0, "{how}");
    });
}

/// Failed before: the call was refused, and nothing was at the old addresses any more.
#[test]
fn memory_that_cannot_be_made_read_only_again_is_not_lost() {
    same("grows");
}

/// Failed before: the call was refused, and the taken memory was gone.
#[test]
fn taken_memory_stays_where_what_is_beside_it_cannot_be_unmapped() {
    same("unmaps-memory");
    same("unmaps-file");
}

/// Failed before: it was refused.
#[test]
fn a_mapping_has_the_addresses_of_what_it_replaces() {
    same("fixed");
}

/// Failed before, by signals: the C library ended the process, datagrams were lost, and reads were EFAULT.
#[test]
fn nothing_is_consumed_by_a_call_without_memory_to_receive_into() {
    same("receives");
}

/// Failed before: SIGABRT.
#[test]
fn memory_is_given_back_where_there_is_none_left_for_lists() {
    same("gives-back");
}

/// Failed before: it was there for ever, and nobody knew of it.
#[test]
fn a_block_that_cannot_be_unmapped_goes_later() {
    same("frees");
}
