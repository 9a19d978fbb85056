//! A program that dies of SIGBUS does so under `softfault run` too: `dies.c`.

use crate::{MEMORY, assert_same, compile, directory, file, softfault_run, ways};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

fn same(case: &str) {
    let directory = directory(&format!("dies-{case}"));
    let Some(program) = compile("dies.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 16 << 20);
    let without = Command::new(&program)
        .arg(case)
        .arg(&data)
        .output()
        .unwrap();
    assert_eq!(without.status.signal(), Some(libc::SIGBUS), "{without:?}");
    for how in ways() {
        let mut run = softfault_run();
        run.args([
            "--memory",
            MEMORY,
            "--min-size",
            "1M",
            "--faults",
            how,
            "--strict",
            "--swap",
        ]);
        run.arg(&directory).arg("--");
        let with = run.arg(&program).arg(case).arg(&data).output().unwrap();
        assert_same(&with, &without, how);
    }
}

#[test]
fn a_touch_behind_the_end_of_a_file_ends_the_program() {
    same("beyond");
}

#[test]
fn a_touch_behind_the_end_of_a_file_that_the_kernel_serves_ends_the_program() {
    same("kernels");
}

#[test]
fn a_signal_that_is_sent_ends_the_program() {
    same("sent");
}

#[test]
fn a_handler_that_restores_the_default_ends_the_program() {
    same("restored");
}

#[test]
fn a_signal_that_a_handler_raises_again_ends_the_program() {
    same("raised");
}
