//! Calls that write many bytes which are not in memory: `writes.c`.

use crate::{MEMORY, assert_same, compile, directory, file, softfault_run, stats, ways};
use std::process::Command;

/// A mapping of 48 times as many bytes as a call of the first kind writes.
const BYTES: usize = 48 << 20;

fn writes(name: &str, more: &[&str], check: impl Fn(&stats::ProcessStats, &str)) {
    let directory = directory(name);
    let Some(program) = compile("writes.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, BYTES);
    let without = Command::new(&program).arg(&data).args(more).output();
    let without = without.unwrap();
    assert!(without.status.success(), "{without:?}");
    for how in ways() {
        let written = directory.join(format!("{how}.stats"));
        let _ = std::fs::remove_file(&written);
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--faults", how, "--stats=json"]);
        with.arg("--stats-file").arg(&written).arg("--");
        let with = with.arg(&program).arg(&data).args(more).output().unwrap();
        assert_same(&with, &without, how);
        let stats = stats::read(&written);
        let main = stats.last().expect("the program's own");
        assert_eq!((main.taken(), main.handed_back()), (1, 0), "{how}");
        check(main, how);
    }
}

/// The rest follows where a page was missing, and only then.
#[test]
fn what_the_kernel_stops_at_a_missing_page_follows() {
    writes("writes", &[], |_, _| {});
}

/// A call with six times the budget brings in each page about once.
#[test]
fn a_call_with_more_than_the_budget_reads_it_once() {
    const CALLS: u64 = 7;
    writes("writes-all", &["all"], |main, how| {
        let read = main.number(&["read_bytes"]);
        println!("{how}: {} MiB for each call", (read / CALLS) >> 20);
        assert!(read > 0 && read < CALLS * BYTES as u64 * 3 / 2, "{read}");
    });
}
