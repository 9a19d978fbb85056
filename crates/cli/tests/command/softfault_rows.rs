//! Rows of the softfault engine, over both kinds of page tables: every workload over its budget, each
//! touched byte checked by the child.

use super::rows::LATE;
use super::{directory, rows};
use serde_json::Value;

/// Bytes read past the kernel's page cache are all that the group has.
const BOTH: [&str; 2] = ["softfault:reads=direct", "soft"];

fn lab(on: &str, workload: &str, more: &[&str]) -> Vec<Value> {
    let dir = directory();
    let dir = dir.path().to_str().unwrap();
    let mut arguments = vec!["lab", "run", workload, "--on", on, "--dir", dir];
    arguments.extend_from_slice(more);
    arguments.extend(LATE);
    let rows = rows(&arguments);
    for row in &rows {
        assert_eq!((&row["on"], &row["checked"]), (&on.into(), &true.into()));
        assert_eq!(
            (&row["gave_up"], &row["error"]),
            (&false.into(), &Value::Null),
            "{row}"
        );
        for counter in [
            "retry_mmap_drop",
            "retry_io_miss",
            "readahead_pages",
            "readahead_used",
        ] {
            assert!(row[counter].is_u64(), "{counter}: {row}");
        }
        for lock in ["mmap_lock_read", "mmap_lock_write", "vma_lock"] {
            let lock = &row["locks"][lock];
            let ranges = lock["wait_ranges"].as_array().unwrap();
            let waits: u64 = ranges.iter().map(|n| n.as_u64().unwrap()).sum();
            assert_eq!(
                (ranges.len(), Some(waits)),
                (8, lock["count"].as_u64()),
                "{row}"
            );
            for field in ["wait_total_us", "wait_avg_us", "wait_max_us"] {
                assert!(lock[field].is_f64(), "{field}: {row}");
            }
        }
        // The group's own peak, 1 GiB of limit above the budget: this can fail. With pages left in the
        // kernel's page cache it is no budget's.
        if let Some(peak) = row["peak_bytes"].as_u64()
            && on.contains("reads=direct")
        {
            let memory = row["memory_bytes"].as_u64().unwrap();
            assert!(peak <= memory + (64 << 20), "{row}");
        }
    }
    rows
}

#[test]
fn sparse() {
    for on in BOTH {
        let size = ["--file-size", "128M", "--memory", "32M", "--touch", "5"];
        let rows = lab(on, "sparse", &size);
        assert_eq!(rows.len(), 5);
        assert!(rows.iter().all(|row| row["accesses"] == 1638));
    }
}

#[test]
fn random() {
    for on in BOTH {
        let size = ["--file-size", "128M", "--memory", "32M"];
        let time = ["--threads", "16", "--seconds", "0.5"];
        let rows = lab(on, "random", &[&size[..], &time].concat());
        assert!(rows[0]["accesses"].as_u64().unwrap() > 0);
    }
}

#[test]
fn scan() {
    for (on, threads) in [
        ("softfault:reads=direct", "1"),
        ("softfault", "3"),
        ("soft", "2"),
    ] {
        let size = ["--file-size", "128M", "--memory", "32M"];
        let rows = lab(on, "scan", &[&size[..], &["--threads", threads]].concat());
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row["accesses"] == 128 << 8));
    }
}

#[test]
fn thrash() {
    for on in BOTH {
        let size = ["--file-size", "1M", "--memory", "32M", "--threads", "100"];
        let time = ["--seconds", "0.5"];
        let rows = lab(
            on,
            "thrash",
            &[&["--files", "data,holes"], &size[..], &time].concat(),
        );
        for row in &rows {
            let rounds = row["rounds"].as_u64().unwrap();
            assert!(rounds > 0);
            assert_eq!(row["accesses"].as_u64().unwrap(), rounds * 256);
        }
    }
}

/// Document 002's and 004's workloads; their counts are looked at with the kernel's rows beside.
#[test]
fn the_documents_workloads_over_soft_tables() {
    let files = ["--file-size", "24M", "--memory", "12M", "--threads", "3"];
    let rows = lab("soft", "warm-start", &files);
    assert!(
        rows[0]["longest_waits"]["fork_us"].is_number(),
        "{}",
        rows[0]
    );
    for workload in ["pft", "spf"] {
        let size = ["--file-size", "1M", "--memory", "32M", "--threads", "2"];
        let rows = lab(
            "soft",
            workload,
            &[&size[..], &["--seconds", "0.3"]].concat(),
        );
        assert!(rows.iter().all(|row| row["faults"].as_u64() > Some(0)));
    }
    let size = ["--file-size", "32M", "--memory", "12M", "--threads", "3"];
    let rows = lab(
        "soft",
        "storm",
        &[&size[..], &["--seconds", "0.3"]].concat(),
    );
    assert!(rows[0]["maps_per_s"].as_f64() > Some(0.0), "{}", rows[0]);
}

#[test]
fn policies_are_engines_of_their_own() {
    let dir = directory();
    let dir = dir.path().to_str().unwrap();
    let on = "softfault:retry=mmap-lock+pin=no,softfault:miss=p1,softfault,softfault:pin=no+retry=held,\
              softfault:lock=rwsem";
    let mut arguments = vec!["lab", "run", "random", "--on", on, "--dir", dir];
    arguments.extend("--file-size 64M --memory 24M --threads 8 --seconds 0.3".split(' '));
    arguments.extend(LATE);
    let rows = rows(&arguments);
    let names: Vec<_> = rows.iter().map(|row| row["on"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "softfault:retry=mmap-lock+pin=no",
            "softfault:miss=p1",
            "softfault",
            "softfault:retry=held+pin=no",
            "softfault:lock=rwsem",
        ]
    );
    for row in &rows {
        assert!(
            row["error"].is_null() && row["accesses"].as_u64() > Some(0),
            "{row}"
        );
    }
}
