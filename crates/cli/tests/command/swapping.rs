//! The workloads that swap: their rows, and that the kernel's swap is gone when they are.

use super::rows::{lab, number};
use super::{directory, finish, is_empty, softfault};
use serde_json::Value;

/// A row's touches of a kind, by how long they took.
fn touches(row: &Value, kind: &str) -> f64 {
    let ranges = row["wait_ranges"][kind].as_array().expect("timed");
    assert_eq!(ranges.len(), 8, "{row}");
    ranges.iter().map(|count| count.as_f64().unwrap()).sum()
}

/// Whether the machine gave the row a memory cgroup and swap; if not, the row must say so.
fn was_run(row: &Value) -> bool {
    let Some(why) = row["skipped"].as_str() else {
        return true;
    };
    let noted = row["notes"].as_array().unwrap().iter();
    assert!(
        noted
            .clone()
            .any(|note| note.as_str().unwrap().contains(why)),
        "{row}"
    );
    assert_eq!(row["on"], "kernel");
    assert_eq!(
        (number(row, "accesses"), &row["accesses_per_s"]),
        (0.0, &Value::Null)
    );
    false
}

fn run(workload: &str, more: &str) -> Vec<Value> {
    let dir = directory();
    let more: Vec<&str> = more.split(' ').collect();
    let rows = lab(workload, dir.path(), &more);
    // How much the kernel swaps in at a time decides most of its rows' figures.
    let cluster = std::fs::read_to_string("/proc/sys/vm/page-cluster").ok();
    let cluster = cluster.and_then(|text| text.trim().parse::<u64>().ok());
    assert!(
        rows.iter()
            .all(|row| row["page_cluster"].as_u64() == cluster)
    );
    rows.into_iter().filter(was_run).collect()
}

/// Of fewer accesses, shares are chance's.
const ENOUGH: f64 = 2000.0;

#[test]
fn anon_stands_beside_an_exact_lru() {
    let mut rows = Vec::new();
    // Where the disk is busy, for longer.
    for seconds in ["0.5", "4", "30"] {
        let on = "--on direct,kernel,softfault,soft --memory 24M --threads 4";
        rows = run("anon", &format!("{on} --seconds {seconds}"));
        if rows.iter().all(|row| number(row, "accesses") >= ENOUGH) {
            break;
        }
    }
    for row in &rows {
        assert_eq!(
            (&row["gave_up"], &row["checked"], &row["file_bytes"]),
            (&false.into(), &true.into(), &(96 << 20).into())
        );
        assert!(number(row, "accesses") > 0.0);
        assert_eq!(touches(row, "touch"), number(row, "accesses"));
        // Of the kernel's swap neither is certain: it is written by its own thread, and may be memory (zswap).
        let ours = row["on"] != "kernel";
        assert!(
            !ours || number(row, "bytes_read") > 0.0 && number(row, "bytes_written") > 0.0,
            "{row}"
        );
        let (hits, lru) = (number(row, "hit_rate"), number(row, "lru_hit_rate"));
        // A quarter of the pages fit; it starts with those that were populated last.
        let of_lru = match row["pattern"].as_str().unwrap() {
            "uniform" => 0.2..0.3,
            _ => 0.5..0.95,
        };
        assert!(of_lru.contains(&lru), "{row}");
        match row["on"].as_str().unwrap() {
            "direct" => {
                assert_eq!((hits, &row["over_budget_bytes"]), (0.0, &Value::Null));
                let reads = number(row, "bytes_read") / 4096.0 / number(row, "accesses");
                // Where the program's text has left the page cache, it is read, too: a major fault.
                let text = number(row, "major_faults");
                assert!(text > 0.0 || (reads - 0.5).abs() < 0.1, "{row}");
            }
            // How many it finds is its own business.
            "kernel" => assert!(hits <= 1.0 && row["limited"] == true, "{row}"),
            _ => {
                assert!(hits > 0.1, "{row}");
                let swap = &row["swap"];
                assert!(
                    number(swap, "pages_in") > 0.0 && number(swap, "pages_out") > 0.0,
                    "{row}"
                );
                assert_eq!(
                    (number(swap, "write_errors"), number(swap, "full")),
                    (0.0, 0.0),
                    "{row}"
                );
                assert!(
                    number(row, "over_budget_bytes") < f64::from(64 << 20),
                    "{row}"
                );
            }
        }
    }
    assert!(rows.iter().any(|row| row["on"] == "direct"));
}

#[test]
fn anon_that_fits_needs_no_io() {
    let rows = run(
        "anon",
        "--on kernel,softfault,soft --size 8M --memory 64M --threads 3 --pattern zipf --theta 0.5 --writes 20 \
         --seconds 0.3",
    );
    for row in &rows {
        assert_eq!(row["pattern"], "zipf0.5");
        let ours = row["on"] != "kernel";
        let (hits, lru) = (number(row, "hit_rate"), number(row, "lru_hit_rate"));
        // The kernel's major faults are those of the program's text, too, where that has left its page cache.
        assert!(lru == 1.0 && (hits == 1.0 || !ours && hits < 1.0), "{row}");
        assert!(
            number(row, "over_budget_bytes") < f64::from(64 << 20),
            "{row}"
        );
        assert_eq!(
            (row["swap"].is_object(), row["locks"].is_object()),
            (ours, ours)
        );
    }
}

#[test]
fn swap_retry_is_the_same_work_for_every_engine() {
    let rows = run(
        "swap-retry",
        "--on kernel,softfault,softfault:retry=mmap-lock+pin=no,soft --size 32M --memory 12M --threads 6",
    );
    for row in &rows {
        assert_eq!(number(row, "accesses"), 16.0 * 1024.0, "two passes: {row}");
        assert_eq!(number(row, "rounds"), 512.0);
        if row["on"] != "kernel" {
            assert!(number(row, "retry_mmap_drop") > 0.0, "{row}");
            assert_eq!(row["retry_mmap_drop"], row["swap"]["retry_mmap_drop"]);
        }
        let waits = row["longest_waits"].as_object().unwrap();
        for timed in ["touch", "priority_touch", "map", "unmap", "fork"] {
            assert!(
                waits[&format!("{timed}_us")].as_f64() > Some(0.0),
                "{timed}: {row}"
            );
        }
        assert!(row["hit_rate"].is_null() && row["lru_hit_rate"].is_null());
    }
}

#[test]
fn a_snapshot_is_walked_while_threads_write() {
    // With room for both: in a small group that swaps and forks the kernel's reclaim gives up and kills.
    let rows = run(
        "snapshot",
        "--on kernel,softfault --memory 96M --size 32M --threads 2 --seconds 1",
    );
    for row in &rows {
        let waits = &row["longest_waits"];
        for timed in ["touch_us", "walk_touch_us", "fork_us", "walk_us"] {
            assert!(waits[timed].as_f64() > Some(0.0), "{timed}: {row}");
        }
        assert_eq!((touches(row, "fork"), touches(row, "walk")), (1.0, 1.0));
        let kinds = ["touch", "fork_touch", "walk_touch"];
        let timed = kinds
            .iter()
            .filter(|kind| !row["wait_ranges"][**kind].is_null());
        let all: f64 = timed.map(|kind| touches(row, kind)).sum();
        assert_eq!(all, number(row, "accesses"));
        // The child has touched all of it.
        assert!(
            number(row, "child_peak_rss_bytes") >= f64::from(32 << 20),
            "{row}"
        );
    }
}

#[test]
fn the_tables_name_workloads_that_swap() {
    let dir = directory();
    let arguments = "anon --on direct --size 4M --memory 4M --threads 2 --seconds 0.1 --timeout 60";
    let mut run = softfault(&["lab", "run"]);
    run.args(arguments.split(' ')).arg("--dir").arg(dir.path());
    let (code, out, err) = finish(&mut run);
    assert_eq!(code, 0, "{err}");
    for word in ["in memory", "LRU", "of direct", "over budget", "written"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(
        !out.contains("not limited"),
        "direct has no memory to limit: {out}"
    );
    assert!(is_empty(dir.path()));
}
