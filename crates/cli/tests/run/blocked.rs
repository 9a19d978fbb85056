//! Signals that a program blocks, and threads of the C library's that begin with all signals blocked: `blocked.c`.

use crate::stats::ProcessStats;
use crate::{BYTES, compile, directory, file, has_messages, same_each_way, same_way};
use std::ffi::OsStr;

/// Its mapping is taken, as often as the case makes it.
fn takes(count: u64) -> impl Fn(&[ProcessStats], &str) {
    move |stats, how| assert_eq!(stats[0].taken(), count, "{how}")
}

/// Runs a case each way, or one way.
fn run(case: &str, way: Option<&str>, taken: u64) {
    let directory = directory(&format!("blocked-{case}"));
    let Some(program) = compile("blocked.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, BYTES);
    // A thread that waits for ever ends, too.
    let mut command: Vec<&OsStr> = vec!["timeout".as_ref(), "300".as_ref()];
    command.extend([program.as_os_str(), OsStr::new(case), data.as_os_str()]);
    match way {
        None => same_each_way(&directory, &command, &[], takes(taken)),
        Some(how) => same_way(&directory, &command, &[], how, takes(taken)),
    }
}

/// Failed before: softfault unblocked them in a thread that called it, and its own threads took those that were sent to the process.
#[test]
fn signals_that_all_threads_block_stay_pending() {
    run("others", None, 5);
}

/// By signals SIGBUS is softfault's.
#[test]
fn a_sigbus_that_all_threads_block_stays_pending() {
    if has_messages() {
        run("bus", Some("messages"), 2);
    }
}

/// Failed before, by signals: the C library starts these threads with SIGBUS blocked.
#[test]
fn functions_of_timers_touch_missing_memory() {
    run("timers", None, 1);
}
