//! `lab profile`: each touch is in one place of a column, and its stages sum to the whole.

use super::{directory, rows};
use serde_json::Value;

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
