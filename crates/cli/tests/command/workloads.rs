//! The workloads about mapping: their rows, on the kernel's mmap and on softfault.

use super::rows::{given_up, lab, number};
use super::{directory, finish, softfault, words};
use serde_json::Value;

/// Small runs of a workload, on both engines.
fn small(workload: &str, more: &str) -> Vec<Value> {
    let dir = directory();
    let more: Vec<&str> = more.split(' ').collect();
    let rows = lab(workload, dir.path(), &more);
    for row in &rows {
        assert_eq!(
            (&row["gave_up"], &row["checked"]),
            (&false.into(), &true.into())
        );
        // Only softfault tells the waits for its locks.
        let ours = row["on"].as_str().unwrap().starts_with("softfault");
        assert_eq!(row["locks"].is_object(), ours, "{row}");
    }
    rows
}

/// Which longest waits a row has; each is above zero.
fn waits(row: &Value) -> Vec<&str> {
    let waits = row["longest_waits"].as_object().expect("timed");
    assert_eq!(waits.len(), 8, "{row}");
    let timed = waits.iter().filter(|(_, wait)| !wait.is_null());
    timed
        .map(|(name, wait)| {
            assert!(wait.as_f64().unwrap() > 0.0, "{name}: {row}");
            name.strip_suffix("_us").unwrap()
        })
        .collect()
}

#[test]
fn warm_start_is_the_same_work_for_every_engine() {
    let on = "kernel,softfault,softfault:retry=mmap-lock+pin=no,softfault:retry=held";
    let rows = small(
        "warm-start",
        &format!("--on {on} --file-size 96M --memory 24M --threads 6"),
    );
    assert_eq!(rows.len(), 4);
    let first = &rows[0];
    assert!(number(first, "accesses") > 1000.0 && number(first, "rounds") > 10.0);
    for row in &rows {
        for figure in ["accesses", "rounds", "file_bytes"] {
            assert_eq!(row[figure], first[figure], "{figure}: {row}");
        }
        assert_eq!(
            (&row["pattern"], &row["threads"]),
            (&"mixed".into(), &6.into())
        );
        assert!((number(row, "file_bytes") / f64::from(96 << 20) - 1.0).abs() < 0.1);
        let mut timed = waits(row);
        timed.sort_unstable();
        assert_eq!(timed, ["fork", "map", "priority_touch", "touch", "unmap"]);
        assert!(row["faults"].is_null() && row["maps_per_s"].is_null());
    }
}

#[test]
fn warm_start_ends_with_its_time_if_it_has_one() {
    let rows = small(
        "warm-start",
        "--on softfault --file-size 4M --memory 24M --threads 2 --seconds 0.3",
    );
    assert!(number(&rows[0], "elapsed_s") >= 0.3 && number(&rows[0], "rounds") > 0.0);
}

#[test]
fn pft_counts_each_page_of_each_thread() {
    let rows = small(
        "pft",
        "--on kernel,softfault --threads 1,3 --file-size 1M --memory 64M --seconds 0.2",
    );
    let names: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["pattern"].as_str().unwrap(),
                number(row, "threads") as u64,
            )
        })
        .collect();
    let expected = [("own", 1), ("own", 3), ("shared", 1), ("shared", 3)];
    assert_eq!(names, expected.map(|row| [row; 2]).concat());
    for row in &rows {
        let (faults, threads) = (number(row, "faults"), number(row, "threads"));
        assert_eq!(faults, number(row, "accesses"));
        assert!(
            faults > 0.0 && faults % (256.0 * threads) == 0.0,
            "whole rounds: {row}"
        );
        assert_eq!(number(row, "file_bytes"), threads * f64::from(1 << 20));
        // Populating is a part of the run, and the threads' time a part of the process's.
        assert!(
            number(row, "faults_per_s") >= faults / number(row, "elapsed_s"),
            "{row}"
        );
        assert!(number(row, "faults_per_cpu") > 0.0, "{row}");
        assert_eq!(waits(row), ["map", "unmap"]);
        assert!(row["rounds"].is_null() && row["maps_per_s"].is_null());
        // The kernel's own count agrees.
        if row["on"] == "kernel" {
            assert!(number(row, "minor_faults") >= faults, "{row}");
        }
    }
    let shared = small(
        "pft",
        "--on kernel --pattern shared --threads 2 --file-size 64K --seconds 0.1",
    );
    assert_eq!((shared.len(), &shared[0]["pattern"]), (1, &"shared".into()));
}

#[test]
fn loops_measure_one_verb() {
    let all = "mmap,mmap-touch,unmap-untouched,unmap,touch,unmap-untouched-contended,unmap-contended,touch-contended";
    let arguments =
        format!("--on kernel,softfault --pattern {all} --threads 1,3 --memory 64M --seconds 0.1");
    let rows = small("loops", &arguments);
    assert_eq!(rows.len(), 8 * 2 * 2);
    for row in &rows {
        let (regions, threads) = (number(row, "rounds"), number(row, "threads"));
        assert!(
            regions > 0.0 && regions % (64.0 * threads) == 0.0,
            "whole batches: {row}"
        );
        // The verb is a part of the run.
        assert!(
            number(row, "rounds_per_s") >= regions / number(row, "elapsed_s"),
            "{row}"
        );
        let touched = number(row, "accesses") / regions;
        match row["pattern"].as_str().unwrap() {
            "mmap" => assert_eq!((touched, waits(row)), (0.0, vec!["map"])),
            "mmap-touch" => assert_eq!((touched, waits(row)), (4.0, vec!["map", "touch"])),
            "unmap-untouched" | "unmap-untouched-contended" => {
                assert_eq!((touched, waits(row)), (0.0, vec!["unmap"]));
            }
            // The last batch may be prepared, and then the time is over.
            "unmap" | "unmap-contended" => assert!((4.0..=8.0).contains(&touched), "{row}"),
            _ => assert_eq!((touched, waits(row)), (4.0, vec!["touch"])),
        }
    }
}

#[test]
fn spf_maps_touches_and_unmaps() {
    let rows = small(
        "spf",
        "--on kernel,softfault --threads 1,4 --memory 24M --seconds 0.2",
    );
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let maps = number(row, "maps_per_s") * number(row, "elapsed_s");
        assert!(maps > 0.0);
        let touched = number(row, "faults") / maps;
        assert!(
            (touched - 4.0).abs() < 1e-6,
            "four pages of each mapping: {row}"
        );
        for figure in ["faults_per_s", "faults_per_cpu"] {
            assert!(number(row, figure) > 0.0);
        }
        let mut timed = waits(row);
        timed.sort_unstable();
        assert_eq!(timed, ["map", "touch", "unmap"]);
    }
    // Not even four pages.
    let tiny = small("spf", "--on kernel,softfault --file-size 4K --seconds 0.1");
    assert!(tiny.iter().all(|row| number(row, "faults") > 0.0));
}

#[test]
fn many_brings_pages_in_by_one_call() {
    let rows = small(
        "many",
        "--on pread,kernel,kernel-random,softfault --file-size 32M --memory 64M",
    );
    assert_eq!(rows.len(), 8);
    for row in &rows {
        let accesses = if row["pattern"] == "cold" { 2 } else { 64 };
        assert_eq!(number(row, "accesses"), f64::from(4096 * accesses), "{row}");
        assert_eq!(row["threads"], 1);
        if row["on"] == "softfault" && row["pattern"] == "cold" {
            // By whole pages, each once, and nothing around them; but for the program's text, where that has left the page cache:
            // a major fault, and megabytes around it.
            let (read, text) = (number(row, "bytes_read"), number(row, "major_faults"));
            assert!(
                read == 0.0 || text > 0.0 || (0.95..1.05).contains(&(read / 8192.0 / 4096.0)),
                "{row}"
            );
        }
    }
}

/// The run itself looks whether all is in the file.
#[test]
fn write_has_all_of_it_in_the_file() {
    let more = "--pattern sequential,append,random,zipf --threads 3 --seconds 0.5 --flush-every 5000 \
                --file-size 40M --memory 24M --on kernel,softfault,direct";
    let rows = small("write", more);
    assert_eq!(rows.len(), 12);
    for row in &rows {
        assert_eq!(row["error"], Value::Null, "{row}");
        let pages = number(row, "accesses");
        match row["pattern"].as_str().unwrap() {
            "sequential" | "append" => assert_eq!(pages, f64::from(40 << 8)),
            _ => assert!(pages > 0.0),
        }
    }
}

#[test]
fn storm_touches_one_file_and_maps_another() {
    let rows = small(
        "storm",
        "--on kernel-random,softfault,softfault:retry=held --file-size 48M --memory 24M --threads 3 \
         --seconds 0.3",
    );
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert!(number(row, "accesses") > 0.0 && number(row, "maps_per_s") > 0.0);
        assert_eq!(
            (&row["threads"], &row["file_bytes"]),
            (&3.into(), &(48 << 20).into())
        );
        let mut timed = waits(row);
        timed.sort_unstable();
        assert_eq!(timed, ["map", "touch", "unmap"]);
        assert!(row["faults"].is_null());
    }
}

#[test]
fn a_run_that_is_killed_keeps_its_mappings_and_waits() {
    let arguments = "--on kernel-random --file-size 8M --memory 16M";
    let maps = |row: &Value| row["maps_per_s"].as_f64() > Some(0.0);
    let begun = |row: &Value| maps(row) && number(row, "accesses") > 0.0;
    let row = &given_up("storm", arguments, begun);
    assert!(maps(row), "{row}");
    let mut timed = waits(row);
    timed.sort_unstable();
    assert_eq!(timed, ["map", "touch", "unmap"]);
}

#[test]
fn the_tables_tell_threads_and_waits() {
    let mut run = softfault(&words("lab run spf --on kernel --threads 1,2 --timeout 60"));
    let (code, out, err) = finish(run.args(["--seconds", "0.1"]));
    assert_eq!(code, 0, "{err}");
    for word in ["spf ×1", "spf ×2", "maps/s", "longest wait", "unmap"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}
