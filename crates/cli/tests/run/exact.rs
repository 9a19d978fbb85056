//! Calls that take something away, stop half-way or write a part of what they were handed: `exact.c`.

use crate::same_case;
use crate::stats::ProcessStats;

fn same_by(case: &str, check: impl Fn(&ProcessStats, &str)) {
    same_case("exact.c", case, (Some(6 << 20), "100M"), check);
}

fn same(case: &str) {
    same_by(case, |stats, how| assert!(stats.taken() > 0, "{how}"));
}

/// Failed before, by signals: the bytes of the pipe went to a copy that nobody read, and vmsplice(2) answered their number.
#[test]
fn what_is_taken_out_of_a_pipe_is_in_memory() {
    same("spliced");
}

/// Failed before, by signals: the rest went out by calls that wait, since the handler had made room. The call slept again.
#[test]
fn a_call_ends_whose_handler_makes_room_for_more() {
    same("ends");
}

/// Failed before, by signals: the whole sets that the count named were put back, and all that a call may write to, as it was before.
#[test]
fn only_what_a_call_changes_is_put_back() {
    same("kept");
}

/// Failed before, by signals: EFAULT, but for fstat(2) and its like.
#[test]
fn calls_by_number_have_their_memory() {
    same("numbers");
}

/// Failed before: the engine's window was sealed, and not the program's mapping, which could be unmapped.
#[test]
fn memory_that_is_sealed_is_the_kernels() {
    same_by("sealed", |stats, how| assert_eq!(stats.taken(), 2, "{how}"));
}
