//! Calls that write many bytes which are not in memory: `writes.c`.

use crate::{compile, directory, file, same_each_way, stats};
use std::ffi::OsStr;

/// A mapping of 48 times as many bytes as a call of the first kind writes.
const BYTES: usize = 48 << 20;

fn writes(name: &str, more: &[&str], check: impl Fn(&stats::ProcessStats, &str)) {
    let directory = directory(name);
    let Some(program) = compile("writes.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, BYTES);
    let mut command: Vec<&OsStr> = vec![program.as_ref(), data.as_ref()];
    command.extend(more.iter().map(OsStr::new));
    same_each_way(&directory, &command, &[], |stats, how| {
        let main = stats.last().expect("the program's own");
        assert_eq!((main.taken(), main.handed_back()), (1, 0), "{how}");
        check(main, how);
    });
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
        let read = main.number(&["bytes_read"]);
        println!("{how}: {} MiB for each call", (read / CALLS) >> 20);
        assert!(read > 0 && read < CALLS * BYTES as u64 * 3 / 2, "{read}");
    });
}
