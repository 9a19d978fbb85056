//! `lab profile`: each touch is in one place of a column, and its stages sum to the whole.

use super::interrupted::{lives, signal, start, until};
use super::{directory, refused, rows, softfault};
use serde_json::Value;
use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

/// The columns of these kinds.
fn columns(kinds: &str, told_by: &str, touches: &str) -> Vec<Value> {
    let dir = directory();
    let dir = dir.path().to_str().expect("UTF-8");
    let what = [
        "--kind",
        kinds,
        "--faults",
        told_by,
        "--touches",
        touches,
        "--dir",
        dir,
    ];
    let mut columns = rows(&[&["lab", "profile"], &what[..]].concat());
    assert_eq!(columns.len(), kinds.split(',').count());
    columns.retain(|column| match column["not_run"].as_str() {
        None => true,
        Some(why) => {
            assert_eq!(
                told_by, "messages",
                "signals are to be had everywhere: {why}"
            );
            softfault_skip::skipped("messages", why);
            false
        }
    });
    columns
}

fn number(of: &Value) -> u64 {
    of.as_u64().expect("a number")
}

/// How often a stage was begun.
fn times(column: &Value, stage: &str) -> u64 {
    let stages = column["stages"].as_array().expect("a list");
    let found = stages.iter().find(|one| one["stage"] == stage);
    found.map_or(0, |one| number(&one["times"]))
}

fn every_touch_is_in_one_place(column: &Value, touches: u64) {
    let counts = ["of_kind", "otherwise", "no_fault"].map(|name| number(&column[name]));
    assert_eq!(number(&column["touches"]), touches, "{column}");
    assert_eq!(counts.iter().sum::<u64>(), touches, "{column}");
    let stages = column["stages"].as_array().expect("a list");
    let sum: u64 = stages.iter().map(|one| number(&one["ns"])).sum();
    assert_eq!(sum, number(&column["total_ns"]), "{column}");
    assert_eq!(
        times(column, "kernel, to us"),
        counts[0],
        "each begins once"
    );
}

#[test]
fn faults_by_signals() {
    let kinds =
        "present,cold,page-cache,evicted,zero-read,zero-write,swap-in,protected,private-copy";
    for column in columns(kinds, "signals", "300") {
        every_touch_is_in_one_place(&column, 300);
        let kind = column["kind"].as_str().expect("a name");
        let of_kind = number(&column["of_kind"]);
        assert!(of_kind > 200, "most go the way of their kind: {column}");
        let faults = if kind == "present" { 0 } else { of_kind };
        for stage in ["handler", "return"] {
            assert!(times(&column, stage) >= faults, "{column}");
        }
        let has = |stage| times(&column, stage) >= of_kind;
        let expected: &[&str] = match kind {
            "present" => &[],
            "zero-read" => &["zeros"],
            "zero-write" => &["VMA lock", "copy"],
            "protected" => &["VMA lock", "index", "unprotect"],
            _ => &["VMA lock", "index", "hole or data", "read", "copy"],
        };
        assert!(expected.iter().all(|stage| has(stage)), "{column}");
    }
}

#[test]
fn read_ahead_maps_more_than_was_touched() {
    for column in columns("read-ahead", "signals", "3000") {
        every_touch_is_in_one_place(&column, 3000);
        assert!(number(&column["no_fault"]) > 2000, "{column}");
        assert!(number(&column["of_kind"]) > 0, "{column}");
        assert_eq!(times(&column, "read"), 0);
    }
}

#[test]
fn faults_by_messages() {
    for column in columns("cold,page-cache,zero-write", "messages", "100") {
        every_touch_is_in_one_place(&column, 100);
        let of_kind = number(&column["of_kind"]);
        assert!(of_kind > 60, "{column}");
        for stage in ["handler", "VMA lock", "copy", "wake"] {
            assert!(times(&column, stage) >= of_kind, "{stage}: {column}");
        }
    }
}

/// Failed before: exit code 1.
#[test]
fn a_directory_that_is_not_there_is_the_callers_error() {
    let dir = directory();
    let mut profile = softfault(&["lab", "profile", "--kind", "cold,present", "--dir"]);
    refused(profile.arg(dir.path().join("none")), "No such file");
}

/// A profile of several columns, and its child for the first one, which is stopped.
fn profile_with_stopped_child() -> (Child, u32) {
    let profile = [
        "lab",
        "profile",
        "--kind",
        "zero-read,present",
        "--faults",
        "signals",
    ];
    let mut profile = start(softfault(&profile).args(["--touches", "200000"]));
    let process = profile.id();
    let child = until(&mut profile, || {
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let child = children.ok()?.trim().parse().ok()?;
        // Once it is the child's own command, the parent does not wait for its start.
        let command = fs::read(format!("/proc/{child}/cmdline")).ok()?;
        let words: Vec<_> = command.split(|&byte| byte == 0).collect();
        words.contains(&&b"zero-read"[..]).then_some(child)
    });
    signal(child, libc::SIGSTOP);
    (profile, child)
}

/// Failed before: the child ended first, which one that is stopped does not.
#[test]
fn a_signal_ends_it_and_its_child() {
    let (mut profile, child) = profile_with_stopped_child();
    signal(profile.id(), libc::SIGTERM);
    assert_eq!(profile.wait().unwrap().code(), Some(143));
    assert!(!lives(child));
}

/// Failed before: the child went on.
#[test]
fn a_killed_profile_takes_its_child_with_it() {
    let (mut profile, child) = profile_with_stopped_child();
    signal(profile.id(), libc::SIGKILL);
    profile.wait().unwrap();
    while lives(child) {
        sleep(Duration::from_millis(10));
    }
}
