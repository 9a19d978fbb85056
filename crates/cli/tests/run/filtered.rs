//! A filter of system calls that the program installs when memory was taken: `filtered.c`.

use crate::filter::{KILL, REFUSE};
use crate::stats::{self, ProcessStats};
use crate::{MEMORY, compile, directory, file, softfault_run, text, ways};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Touches go on, or end the process by a signal: none waits for ever, and none shows another byte. `ends`: by which signals.
#[track_caller]
fn ends_clearly(name: &str, call: libc::c_long, action: u32, ends: &[libc::c_int]) {
    let directory = directory(&format!("filtered-{name}-{action}"));
    let Some(program) = compile("filtered.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 12 << 20);
    let arguments = [call.to_string(), action.to_string()];
    let mut without = Command::new(&program);
    let without = without.args(&arguments).arg(&data).output().unwrap();
    assert!(without.status.success(), "{without:?}");
    let swap = format!("{}:100M", directory.display());
    for how in ways() {
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--min-size", "1M", "--anonymous"]);
        with.args(["--swap", &swap, "--faults", how]);
        let stats = directory.join(how);
        with.args(["--stats=json", "--stats-file"]).arg(&stats);
        with.arg("--");
        // A touch that waits for ever ends, too: by 137.
        with.args(["timeout", "-s", "KILL", "200"]).arg(&program);
        let with = with.args(&arguments).arg(&data).output().unwrap();
        let (all, some) = (text(&without.stdout), text(&with.stdout));
        assert!(all.starts_with(&some), "{name} {how}: {some:?} of {all:?}");
        let status = with.status;
        // By a shell's way to say so, where `timeout` saw the signal.
        let signal = status.signal().or(status.code().map(|code| code - 128));
        let is_whole = status.success() && some == all;
        let is_ended = signal.is_some_and(|signal| ends.contains(&signal));
        assert!(is_whole || is_ended, "{name} {how}: {status:?}, {some:?}");
        if ends.is_empty() {
            let taken: u64 = stats::read(&stats).iter().map(ProcessStats::taken).sum();
            assert!(taken >= 2, "{how}: {taken}");
        }
    }
}

/// Memory that the program touches in these tests is taken.
#[test]
fn what_is_mapped_before_is_taken() {
    /// No call has this number.
    const NONE: libc::c_long = 100_000;
    ends_clearly("none", NONE, KILL, &[]);
}

#[test]
fn calls_that_are_refused() {
    let ends = [libc::SIGBUS];
    ends_clearly("futex", libc::SYS_futex, REFUSE, &ends);
    ends_clearly("pread64", libc::SYS_pread64, REFUSE, &ends);
    ends_clearly("pwritev", libc::SYS_pwritev, REFUSE, &ends);
    ends_clearly("ioctl", libc::SYS_ioctl, REFUSE, &ends);
    ends_clearly("madvise", libc::SYS_madvise, REFUSE, &ends);
    ends_clearly("io_uring_enter", libc::SYS_io_uring_enter, REFUSE, &ends);
    ends_clearly("process_madvise", libc::SYS_process_madvise, REFUSE, &ends);
}

#[test]
fn calls_that_end_the_process() {
    let ends = [libc::SIGSYS];
    ends_clearly("futex", libc::SYS_futex, KILL, &ends);
    ends_clearly("pread64", libc::SYS_pread64, KILL, &ends);
    ends_clearly("madvise", libc::SYS_madvise, KILL, &ends);
    ends_clearly("process_madvise", libc::SYS_process_madvise, KILL, &ends);
}
