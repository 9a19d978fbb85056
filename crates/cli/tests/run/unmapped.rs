//! Places that the program has given up, and calls that are several in the library: `unmapped.c`.

use crate::stats::ProcessStats;
use crate::{assert_same_but_told, compile, directory, file, run_with, same_each_way, ways};
use std::ffi::OsStr;
use std::process::Command;

fn same_by(case: &str, check: impl Fn(&ProcessStats, &str)) {
    let directory = directory(&format!("unmapped-{case}"));
    let Some(program) = compile("unmapped.c", &directory.join("program"), &[]) else {
        return;
    };
    let beside = |name: &str| directory.join(format!("data.{name}"));
    std::fs::rename(file(&directory, 16 << 20), beside("other")).unwrap();
    let numbers: Vec<u8> = (0..6_u32 << 20).flat_map(u32::to_ne_bytes).collect();
    std::fs::write(beside("words"), numbers).unwrap();
    let data = file(&directory, 8 << 20);
    std::fs::write(
        beside("odd"),
        &std::fs::read(&data).unwrap()[..(2 << 20) + 4097],
    )
    .unwrap();
    let swap = format!("{}:256M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    let command = [program.as_ref(), case.as_ref(), data.as_ref()];
    same_each_way(&directory, &command, &options, |stats, how| {
        check(&stats[0], how);
    });
}

/// The same of a case that only has to have something taken.
fn same(case: &str) {
    same_by(case, |stats, how| assert!(stats.taken() > 0, "{how}"));
}

/// A sealed file that may grow is declined where more of it is mapped than there is: the kernel shows what comes to be there.
#[test]
fn a_sealed_file_that_grows() {
    let directory = directory("unmapped-sealed");
    let Some(program) = compile("unmapped.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 1 << 20);
    let command = [program.as_ref(), OsStr::new("sealed"), data.as_ref()];
    let without = Command::new(&program).args(&command[1..]).output().unwrap();
    for how in ways() {
        let written = directory.join(format!("{how}.stats"));
        let options = ["--min-size", "1M", "--faults", how];
        let (with, stats) = run_with(&options, &command, &written);
        assert_same_but_told(&with, &without, &stats, how);
        let declined = stats[0].declined();
        assert_eq!(declined, [("file_may_change".to_owned(), 1)], "{how}");
    }
}

#[test]
fn what_is_not_mapped_is_unmapped() {
    same_by("twice", |stats, how| {
        assert_eq!((stats.taken(), stats.handed_back()), (16, 0), "{how}");
    });
}

#[test]
fn calls_on_a_place_that_was_unmapped() {
    same_by("gone", |stats, how| {
        assert_eq!((stats.taken(), stats.handed_back()), (6, 0), "{how}");
    });
}

#[test]
fn nothing_is_mapped_where_it_was_unmapped() {
    same("asked");
}

#[test]
fn two_parts_and_all_between_are_unmapped() {
    same_by("between", |stats, how| {
        assert_eq!((stats.taken(), stats.handed_back()), (5, 0), "{how}");
    });
}

#[test]
fn something_else_is_mapped_where_one_of_two_parts_was() {
    same_by("over", |stats, how| {
        assert!(stats.handed_back() >= 2, "{how}");
    });
}

/// Failed before: what was there was replaced.
#[test]
fn nothing_is_replaced_where_both_flags_are_set() {
    same("both");
}

/// Failed before: EINVAL, as if something was there.
#[test]
fn shared_memory_is_attached_where_nothing_is_mapped() {
    same("attached");
}

#[test]
fn a_place_is_free_after_a_refused_call() {
    same("refused");
}

#[test]
fn the_only_part_in_use_is_given_up_and_used_again() {
    same_by("reserved", |stats, how| {
        // Four mebibytes three times, and then eight.
        assert_eq!(stats.number(&["taken", "bytes"]), 20 << 20, "{how}");
        assert_eq!(stats.declined(), [], "{how}");
    });
}

#[test]
fn a_file_in_memory_that_was_stored_to_in_between() {
    same_by("stored", |stats, how| {
        assert_eq!((stats.taken(), stats.handed_back()), (3, 0), "{how}");
    });
}

#[test]
fn reads_of_threads_are_whole() {
    same("together");
}

#[test]
fn the_end_of_a_file_is_read_by_a_device() {
    same("odd");
}

#[test]
fn a_cancelled_read_leaves_the_position() {
    same("cancelled");
}

#[test]
fn records_of_threads_are_whole() {
    same("records");
}

#[test]
fn masks_that_are_set_by_their_number() {
    same_by("masks", |stats, how| {
        assert_eq!(stats.taken(), 3, "{how}");
    });
}

#[test]
fn polled_descriptors_that_are_not_in_memory() {
    same("polls");
}
