//! Scenarios that run in a process of their own, since they may end it.

#![allow(dead_code)]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

const SCENARIO: &str = "SOFTFAULT_TEST_SCENARIO";

/// The scenario that this process was started for.
pub fn scenario() -> Option<String> {
    std::env::var(SCENARIO).ok()
}

/// A command that runs `test` of this binary again, where [`scenario`] is
/// `name`.
pub fn command(test: &str, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(SCENARIO, name);
    command
}

/// Runs `test` again as `name`; the child's words are in the answer, and are
/// shown if the test fails.
pub fn run(test: &str, name: &str) -> Output {
    run_command(&mut command(test, name), name)
}

fn run_command(command: &mut Command, name: &str) -> Output {
    let output = command.output().unwrap();
    println!(
        "{name}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs `test` again as `name`, which has to succeed.
#[track_caller]
pub fn succeeds(test: &str, name: &str) {
    succeeds_with(&mut command(test, name), name);
}

/// The same by a [`command`] that was given more: a variable, or a standard input. A child whose `test` is the name of none
/// runs no test and succeeds, too.
#[track_caller]
pub fn succeeds_with(command: &mut Command, name: &str) {
    let output = run_command(command, name);
    assert!(output.status.success(), "{name}: {}", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{name} ran no test");
}

/// Runs a test in a process of its own: a fork of another test would take its engines along.
#[track_caller]
pub fn alone(test: &str, run: impl FnOnce()) {
    match scenario() {
        Some(_) => run(),
        None => succeeds(test, "alone"),
    }
}

/// Runs `test` again as `name`, which has to die of `signal`.
#[track_caller]
pub fn dies_of(signal: i32, test: &str, name: &str) {
    let output = run(test, name);
    assert_eq!(output.status.signal(), Some(signal), "{name}");
}

/// Starts `scenario` in a child made by `fork()`. The child ends with the scenario's result, or with 101 if it panics.
pub fn start(scenario: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child runs the scenario and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: a child that hangs is killed rather than waited for.
        unsafe { libc::alarm(300) };
        let run = std::panic::AssertUnwindSafe(scenario);
        let code = std::panic::catch_unwind(run).unwrap_or(101);
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(code) }
    }
    child
}

/// Runs `scenario` in such a child, and returns its wait status.
pub fn forked(scenario: impl FnOnce() -> i32) -> i32 {
    wait(start(scenario))
}

/// Waits for a child of this process.
pub fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: fills the status.
        let answer = unsafe { libc::waitpid(child, &mut status, 0) };
        if answer == child {
            return status;
        }
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::EINTR)
        );
    }
}

/// The child has to have ended with `code`.
#[track_caller]
pub fn assert_exit(status: i32, code: i32) {
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == code,
        "status {status:#x}"
    );
}
