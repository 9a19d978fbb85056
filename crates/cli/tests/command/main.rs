//! The command as its users meet it: real processes, real cgroups where the machine allows them, real
//! faults. No verdict depends on how long anything takes.

mod arguments;
mod compare;
mod doctor;
mod documented;
mod edges;
#[path = "../run/filter.rs"]
mod filter;
mod full_disk;
mod generated;
mod hugetlb;
mod inputs;
mod interrupted;
mod made_files;
#[path = "../../../softfault/tests/nobody/mod.rs"]
mod nobody;
mod ordinary_user;
mod outputs;
mod profile;
mod read_ahead;
mod report;
mod report_in_browser;
mod rows;
mod sim;
mod softfault_rows;
mod sum;
mod swapping;
mod terminal;
mod tour;
mod unprivileged;
#[path = "../run/unwritten.rs"]
mod unwritten;
mod workloads;

use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// The command, told to leave the machine's caches to the other tests; and interruptible, though these may run as a
/// job in the background, which ignores SIGINT.
fn softfault(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.args(arguments);
    if arguments.starts_with(&["lab", "run"]) {
        command.arg("--keep-system-caches");
    }
    let interruptible = || {
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM] {
            // SAFETY: no handler involved.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: only a system call; nothing is allocated.
    unsafe { command.pre_exec(interruptible) };
    command
}

/// The words of a command line.
fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// A directory on a disk: the target's, since /tmp is often memory. Its name is the one that the kernel tells.
fn directory() -> TempDir {
    let target = std::fs::canonicalize(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(target.expect("it is there")).expect("room for a test")
}

/// A directory in memory, which is no device's; `None` where /dev/shm is not of that kind.
fn tmpfs() -> Option<TempDir> {
    let dir = tempfile::tempdir_in("/dev/shm").ok()?;
    is_tmpfs(dir.path()).then_some(dir)
}

fn is_tmpfs(dir: &Path) -> bool {
    let out = Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(dir)
        .output();
    out.is_ok_and(|out| out.stdout.starts_with(b"tmpfs"))
}

/// The version of the kernel, as far as features depend on it.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|n| n.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Whether nothing is in `dir`.
fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir)
        .expect("the test's own")
        .next()
        .is_none()
}

/// Runs the command. A copy of the program that a test has just written is busy
/// as long as a child that another test forked meanwhile, and that has not come
/// to its exec, has it open for writing.
fn output(command: &mut Command) -> std::io::Result<Output> {
    loop {
        match command.output() {
            Err(busy) if busy.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::yield_now();
            }
            result => return result,
        }
    }
}

/// Runs the command and returns its exit code, stdout and stderr.
fn finish(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = output(command).expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("the command speaks UTF-8");
    let code = status.code().expect("no signal ends the command");
    (code, text(stdout), text(stderr))
}

/// The rows of a run that must succeed.
fn rows(arguments: &[&str]) -> Vec<Value> {
    // Under swap that is slow, beside other programs, the kernel may kill its own row: "out of memory" in the row's cgroup.
    let is_the_kernels = |err: &str| {
        let errors: Vec<_> = err
            .lines()
            .filter(|line| line.starts_with("error: "))
            .collect();
        let is_its = |line: &&str| line.contains(" on kernel: the child was killed");
        !errors.is_empty() && errors.iter().all(is_its)
    };
    let run = || finish(softfault(arguments).args(["--json", "-"]));
    let mut tries = (0..3).map(|_| run());
    let done = |(code, _, err): &(i32, String, String)| *code == 0 || !is_the_kernels(err);
    let (code, out, err) = tries.find(done).unwrap_or_else(run);
    assert_eq!(code, 0, "{arguments:?}: {err}");
    serde_json::from_str(&out).expect("an array of rows")
}

/// Asserts that the command refuses: exit code 2, one line on stderr that has `word` in it, nothing on
/// stdout.
fn refused(command: &mut Command, word: &str) {
    let (code, out, err) = finish(command);
    assert_eq!(code, 2, "{command:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{command:?}: {err}");
    assert!(
        err.starts_with("error: ") && err.contains(word),
        "{command:?}: {err}"
    );
    assert!(out.is_empty(), "{command:?}: {out}");
}
