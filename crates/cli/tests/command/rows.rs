//! The fields of rows.

use super::read_ahead::bdi;
use super::{directory, finish, is_empty, is_tmpfs, kernel, rows, softfault, tmpfs, words};
use serde_json::Value;
use std::path::Path;

/// Every field the issue names, and ours; with whether null is a legal value on a kernel row.
const FIELDS: &[(&str, bool)] = &[
    ("workload", false),
    ("pattern", false),
    ("on", false),
    ("run", false),
    ("threads", false),
    ("seed", false),
    ("file_bytes", false),
    ("memory_bytes", false),
    ("writes", true),
    ("flush_every", true),
    ("touch", true),
    ("seconds", true),
    ("read_ahead_kb", true),
    ("page_cluster", true),
    ("limited", false),
    ("gave_up", false),
    ("checked", false),
    ("accesses", false),
    ("elapsed_s", false),
    ("accesses_per_s", false),
    ("rounds", true),
    ("rounds_per_s", true),
    ("min_rounds", true),
    ("median_rounds", true),
    ("faults", true),
    ("faults_per_s", true),
    ("faults_per_cpu", true),
    ("maps_per_s", true),
    ("longest_waits", true),
    ("touch_p999_us", true),
    ("bytes_read", true),
    ("bytes_written", true),
    ("hit_rate", true),
    ("lru_hit_rate", true),
    ("cpu_s", false),
    ("peak_bytes", true),
    ("over_budget_bytes", true),
    ("peak_rss_bytes", true),
    ("child_peak_rss_bytes", true),
    ("major_faults", false),
    ("minor_faults", false),
    ("retry_mmap_drop", true),
    ("retry_io_miss", true),
    ("readahead_pages", true),
    ("readahead_used", true),
    ("swap", true),
    ("locks", true),
    ("wait_ranges", true),
    ("huge", true),
    ("notes", false),
    ("skipped", true),
    ("error", true),
];

/// Null where the machine did not allow the run, or gave it no time to begin before it was given up, and for nothing else.
const IF_RUN: [&str; 4] = ["accesses_per_s", "cpu_s", "major_faults", "minor_faults"];

/// When a row gives up that was told nothing: long after its time, for a busy machine may give it none for seconds, and a busy disk
/// takes minutes for what it is asked.
pub const LATE: [&str; 2] = ["--timeout", "600"];

/// The rows of a run that must succeed and leave nothing behind, with every field.
pub fn lab(workload: &str, dir: &Path, more: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["lab", "run", workload, "--dir", dir.to_str().unwrap()];
    arguments.extend_from_slice(more);
    if !more.contains(&LATE[0]) {
        arguments.extend(LATE);
    }
    let rows = rows(&arguments);
    assert!(is_empty(dir));
    for row in &rows {
        let object = row.as_object().unwrap();
        let never_began = row["gave_up"] == true && row["elapsed_s"] == 0.0;
        let not_run = row["skipped"].is_string() || never_began;
        for (field, may_be_null) in FIELDS {
            let value = object.get(*field).unwrap_or_else(|| panic!("no {field}"));
            let may_be_null = *may_be_null || (IF_RUN.contains(field) && not_run);
            assert!(may_be_null || !value.is_null(), "{field} is null: {row}");
        }
        assert_eq!(
            object.len(),
            FIELDS.len(),
            "a field nobody asked for: {row}"
        );
        assert_eq!(row["workload"], workload);
        assert!(row["error"].is_null());
        check_limit(row);
    }
    rows
}

/// A limit holds (on v2 memory.max is 1.2 times it); without a cgroup a note says why.
fn check_limit(row: &Value) {
    let limited = row["limited"].as_bool().unwrap();
    let peak = row["peak_bytes"].as_u64();
    if limited && row["on"].as_str().unwrap().starts_with("kernel") {
        let memory = row["memory_bytes"].as_u64().unwrap();
        assert!(peak.is_some() || may_lack_peak(), "{row}");
        assert!(peak.is_none_or(|peak| peak <= memory + memory / 5), "{row}");
    }
    if !limited && row["on"] != "pread" && row["on"] != "direct" {
        assert!(!row["notes"].as_array().unwrap().is_empty(), "{row}");
    }
}

/// Whether the kernel may know no peak of a row's cgroup: those of cgroup v2 have one since 5.19.
pub fn may_lack_peak() -> bool {
    kernel() < (5, 19)
}

/// The row of a run that does not end, and is given up once it has `begun`: a busy machine may give it no time for seconds.
pub fn given_up(workload: &str, more: &str, begun: impl Fn(&Value) -> bool) -> Value {
    let mut row = Value::Null;
    for give_up in ["1", "4", "16", "64"] {
        let dir = directory();
        let arguments = format!("{more} --seconds 100000 --timeout {give_up}");
        let arguments: Vec<&str> = arguments.split(' ').collect();
        row = lab(workload, dir.path(), &arguments).remove(0);
        assert_eq!(row["gave_up"], true);
        if begun(&row) {
            break;
        }
    }
    row
}

/// A figure that a row must have.
pub fn number(row: &Value, field: &str) -> f64 {
    row[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field} is no number: {row}"))
}

#[test]
fn sparse_touches_its_share_of_the_file() {
    let dir = directory();
    let rows = lab(
        "sparse",
        dir.path(),
        &words("--on kernel-random,pread --file-size 16M --memory 16M --touch 10"),
    );
    let of = |field: &str| {
        rows.iter()
            .map(|row| row[field].clone())
            .collect::<Vec<_>>()
    };
    let patterns = [
        "random",
        "stride1021",
        "stride2053",
        "stride4099",
        "sequential",
    ];
    assert_eq!(of("pattern"), patterns.map(|p| [p, p]).concat());
    assert_eq!(of("on"), ["kernel-random", "pread"].repeat(5));
    for row in &rows {
        assert_eq!(row["accesses"], 409, "10 % of 4096 pages");
        assert_eq!(
            (&row["threads"], &row["checked"]),
            (&1.into(), &true.into())
        );
        assert_eq!(
            (&row["gave_up"], &row["rounds"]),
            (&false.into(), &Value::Null)
        );
        assert_eq!(row["file_bytes"], 16 << 20);
        assert!(row["locks"].is_null() && row["retry_mmap_drop"].is_null());
        let rate = number(row, "accesses") / number(row, "elapsed_s");
        assert!((number(row, "accesses_per_s") / rate - 1.0).abs() < 1e-6);
        // Of a file in memory a direct read comes from no device.
        let direct = !row["notes"].to_string().contains("O_DIRECT") && !is_tmpfs(dir.path());
        if row["on"] == "pread" && direct && !row["bytes_read"].is_null() {
            assert!(number(row, "bytes_read") >= 409.0 * 4096.0, "{row}");
        }
    }
}

#[test]
fn random_runs_on_as_many_threads_as_asked() {
    let dir = directory();
    let rows = lab(
        "random",
        dir.path(),
        &words("--on kernel-random,pread --file-size 8M --memory 16M --threads 5 --seconds 0.2"),
    );
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(
            (&row["threads"], &row["pattern"]),
            (&5.into(), &"random".into())
        );
        assert!(number(row, "accesses") > 0.0 && number(row, "elapsed_s") >= 0.2);
    }
}

#[test]
fn scan_reads_every_page_in_every_pass() {
    let dir = directory();
    for threads in ["1", "3"] {
        let rows = lab(
            "scan",
            dir.path(),
            &[
                "--on",
                "kernel,kernel-sequential,pread",
                "--file-size",
                "9M",
                "--memory",
                "16M",
                "--threads",
                threads,
            ],
        );
        let passes: Vec<_> = rows
            .iter()
            .map(|row| row["pattern"].as_str().unwrap())
            .collect();
        let expected = ["cold", "warm", "remap"];
        assert_eq!(passes, expected.map(|pass| [pass; 3]).concat());
        for row in &rows {
            assert_eq!(row["accesses"], 9 << 8);
        }
    }
}

#[test]
fn thrash_counts_rounds_of_every_thread() {
    let dir = directory();
    let rows = lab(
        "thrash",
        dir.path(),
        &words(
            "--on kernel,pread --files data,holes --file-size 128K --memory 64M --threads 20 --seconds 0.2 --timeout 100",
        ),
    );
    let kinds: Vec<_> = rows
        .iter()
        .map(|row| row["pattern"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["data", "data", "holes", "holes"]);
    for row in &rows {
        let (rounds, fewest) = (number(row, "rounds"), number(row, "min_rounds"));
        // A thread that only began when the time was over has no round; the sum is of all of them.
        assert!(rounds >= 1.0 && fewest * 20.0 <= rounds);
        assert_eq!(number(row, "accesses"), rounds * 32.0, "whole rounds only");
        assert_eq!(row["file_bytes"], 20 << 17);
        assert!(
            (number(row, "rounds_per_s") * number(row, "elapsed_s") / rounds - 1.0).abs() < 1e-6
        );
    }
}

#[test]
fn repeats_are_single_rows_and_the_same_work() {
    let dir = directory();
    let path = dir.path().join("rows.json");
    let run = |seed: &str| {
        let (code, out, err) = finish(
            softfault(&["lab", "run", "sparse", "--pattern", "random"])
                .args([
                    "--on",
                    "pread,kernel",
                    "--repeat",
                    "3",
                    "--file-size",
                    "4M",
                    "--memory",
                    "16M",
                    "--seed",
                    seed,
                    "--dir",
                ])
                .arg(dir.path())
                .arg("--json")
                .arg(&path),
        );
        assert_eq!((code, err.as_str()), (0, ""));
        // The table has one line for each engine, the JSON a row for each run.
        assert_eq!(out.matches(" sparse ").count(), 2, "{out}");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
        rows
    };
    let rows = run("7");
    let runs: Vec<_> = rows
        .iter()
        .map(|row| row["run"].as_u64().unwrap())
        .collect();
    assert_eq!(runs, [1, 1, 2, 2, 3, 3]);
    for row in &rows {
        assert_eq!((&row["seed"], &row["accesses"]), (&7.into(), &10.into()));
    }
}

/// Files without a device (tmpfs) have no read-ahead, all others on Linux have one.
#[test]
fn rows_say_how_far_their_device_reads_ahead() {
    let dir = directory();
    let small = words("--file-size 1M --memory 16M --on kernel,pread");
    for row in lab(
        "sparse",
        dir.path(),
        &[&small[..], &["--touch", "10"]].concat(),
    ) {
        let known = bdi(dir.path()).exists();
        assert!(row["read_ahead_kb"].is_u64() || !known, "{row}");
    }
    if let Some(memory) = tmpfs() {
        for row in lab("sparse", memory.path(), &small) {
            assert!(row["read_ahead_kb"].is_null(), "{row}");
        }
    }
}

/// The order of the JSON is the one in which the rows were run.
#[test]
fn each_repeat_begins_with_the_next_engine() {
    let dir = directory();
    let small = words("--file-size 1M --memory 16M --pattern random");
    let on = ["--on", "kernel,pread,softfault", "--repeat", "4"];
    let rows = lab("sparse", dir.path(), &[&small[..], &on].concat());
    let order: Vec<&str> = rows.iter().map(|row| row["on"].as_str().unwrap()).collect();
    let (kernel, pread, softfault) = ("kernel", "pread", "softfault");
    let expected = [
        [kernel, pread, softfault],
        [pread, softfault, kernel],
        [softfault, kernel, pread],
        [kernel, pread, softfault],
    ];
    assert_eq!(order, expected.concat());
}

#[test]
fn a_run_that_does_not_end_is_given_up_with_its_work() {
    let touched = |row: &Value| number(row, "accesses") > 0.0;
    let worked = |row: &Value| touched(row) && number(row, "cpu_s") > 0.0;
    let random = "--on kernel --file-size 8M --memory 16M";
    let row = given_up("random", random, worked);
    assert!(worked(&row), "{row}");
    assert!(number(&row, "elapsed_s") < 100000.0);

    // Threads that are stuck in reclaim die as well: the limit is raised first.
    let thrash = "--on kernel --file-size 2M --memory 24M --threads 24";
    let row = given_up("thrash", thrash, touched);
    assert!(number(&row, "accesses") >= number(&row, "rounds") * 512.0);
}
