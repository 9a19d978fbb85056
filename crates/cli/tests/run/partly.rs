//! Private memory of which a part is protected, or lies behind the end of its file, or where something else was: `partly.c`.

use crate::same_case;
use crate::stats::ProcessStats;

fn same_by(case: &str, check: impl Fn(&ProcessStats, &str)) {
    same_case("partly.c", case, (Some(4 << 20), "100M"), check);
}

fn same(case: &str, handed_back: u64) {
    same_by(case, |stats, how| {
        let counts = (stats.taken(), stats.handed_back());
        assert_eq!(counts, (1, handed_back), "{how}");
    });
}

#[test]
fn it_grows_after_a_read_behind_the_end_of_its_file() {
    same("grows", 0);
}

#[test]
fn a_read_stops_where_it_may_not_be_written_to() {
    same("read-only", 1);
    same("closed", 1);
}

#[test]
fn so_does_one_by_a_device() {
    same("direct", 1);
}

#[test]
fn a_packet_is_read_into_several_vectors() {
    same("packets", 0);
}

#[test]
fn answers_of_poll_stop_where_they_may_not_be_written() {
    same("polled", 2);
}

#[test]
fn a_range_of_several_mappings_does_not_grow() {
    same_by("spans", |stats, how| assert_eq!(stats.taken(), 20, "{how}"));
}

#[test]
fn a_signal_that_was_handled_is_not_blocked() {
    same("handled", 0);
}

#[test]
fn memory_is_where_windows_of_files_were() {
    same_by("reused", |stats, how| assert!(stats.taken() > 12, "{how}"));
}

/// Their addresses are two windows' at once otherwise, and a child of fork has one of both.
#[test]
fn memory_is_where_a_part_was_moved_away() {
    same_by("vacated", |stats, how| assert!(stats.taken() > 12, "{how}"));
}

#[test]
fn children_have_what_is_mapped_over_a_reservation_that_they_do_not_have() {
    same_by("childless", |stats, how| {
        assert!(stats.taken() >= 4, "{how}")
    });
}

#[test]
fn reads_go_on_from_the_kernels_memory_into_the_engines() {
    same_by("without-the-first", |stats, how| {
        assert!(stats.taken() > 0, "{how}");
    });
    same_by("straddled", |stats, how| {
        assert!(stats.taken() > 0, "{how}")
    });
}

#[test]
fn a_call_ends_at_the_part_that_refuses_it() {
    same_by("refused", |stats, how| assert!(stats.taken() > 0, "{how}"));
}

#[test]
fn a_small_read_is_one_call() {
    same_by("small", |stats, how| assert!(stats.taken() > 0, "{how}"));
}

/// Failed before: ENOMEM where the kernel says EINVAL.
#[test]
fn invalid_arguments_are_so_where_nothing_is_mapped() {
    same_by("invalid", |stats, how| {
        assert_eq!(stats.taken(), 2, "{how}")
    });
}
