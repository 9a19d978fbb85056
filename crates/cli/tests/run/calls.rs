//! Each class of calls that hand memory to the kernel, with memory that is not there: `calls.c`.

use crate::stats;
use crate::{assert_same, compile, directory, has_messages, run_with, text, ways};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// A directory that nothing is in.
fn empty(name: &str) -> std::path::PathBuf {
    let path = directory("calls").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn with(program: &Path, how: &str, more: &[&str]) -> (Output, Vec<stats::ProcessStats>) {
    let written = directory("calls").join(format!("{how}.stats"));
    let empty = empty(how);
    let mut command: Vec<&OsStr> = vec![program.as_ref(), empty.as_ref()];
    command.extend(more.iter().map(OsStr::new));
    run_with(&["--faults", how], &command, &written)
}

#[test]
fn every_class_of_calls_finds_missing_pages() {
    let Some(program) = compile("calls.c", &directory("calls").join("calls"), &[]) else {
        return;
    };
    let without = Command::new(&program)
        .arg(empty("without"))
        .output()
        .unwrap();
    assert!(without.status.success(), "{}", text(&without.stdout));
    for how in ways() {
        let (output, stats) = with(&program, how, &[]);
        assert_same(&output, &without, how);
        let main = stats.last().expect("the program's own");
        assert_eq!((main.taken(), main.handed_back()), (1, 0), "{how}");
        assert_eq!(main.number(&["failed_touches"]), 0, "{how}");
    }
    // Or the above would show nothing.
    let (output, _) = with(&program, "signals", &["bare"]);
    assert_eq!(text(&output.stdout), "EFAULT\n");
    if !has_messages() {
        return;
    }
    let (output, _) = with(&program, "messages", &["bare"]);
    assert_eq!(
        text(&output.stdout).trim(),
        if cfg!(target_arch = "x86_64") {
            "found"
        } else {
            "EFAULT"
        }
    );
}
