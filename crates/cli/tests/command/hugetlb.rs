//! The workload of huge pages: its rows, with the machine's pool and without.

use super::rows::{LATE, lab, number};
use super::{directory, finish, softfault};
use serde_json::Value;

#[path = "../../../softfault/tests/huge_scene/mod.rs"]
mod huge_scene;

use huge_scene::Pool;

/// Huge pages of the file.
const PAGES: f64 = 4.0;
/// Processes.
const TWO: f64 = 2.0;

fn run(on: &str) -> Vec<Value> {
    let dir = directory();
    let more = "--size 8M --processes 2 --seconds 0.3";
    let mut more: Vec<&str> = more.split(' ').collect();
    more.extend(["--start", "empty,emptied,populated,scan", "--on", on]);
    let rows = lab("hugetlb", dir.path(), &more);
    for row in &rows {
        if row["skipped"].is_null() {
            check(row);
        }
    }
    rows
}

fn check(row: &Value) {
    assert_eq!(
        (&row["gave_up"], &row["error"]),
        (&false.into(), &Value::Null),
        "{row}"
    );
    assert_eq!(
        (number(row, "threads"), number(row, "file_bytes")),
        (TWO, f64::from(8 << 20))
    );
    let accesses = number(row, "accesses");
    let scan = row["pattern"] == "scan";
    let round = PAGES * if scan { 512.0 } else { 1.0 };
    assert!(accesses >= TWO * round && accesses % round == 0.0, "{row}");
    assert_eq!(row["faults"].is_null(), scan, "{row}");
    assert!(number(row, "cpu_s") > 0.0, "{row}");
    let waits = row["longest_waits"].as_object().expect("timed");
    let timed: Vec<_> = waits.iter().filter(|(_, wait)| !wait.is_null()).collect();
    assert_eq!(timed.len(), if scan { 2 } else { 3 }, "{row}");
    let huge = &row["huge"];
    assert!(
        number(huge, "wait_total_us") >= number(huge, "wait_max_us"),
        "{row}"
    );
    let served = number(huge, "served");
    match (
        row["on"].as_str().unwrap(),
        row["pattern"].as_str().unwrap(),
    ) {
        ("kernel" | "kernel-parked", _) => assert_eq!(served, 0.0, "{row}"),
        ("softfault", "empty") => {
            assert!((PAGES..=TWO * PAGES).contains(&served), "{row}");
        }
        // A page that is missing in a round is served to one of them at least.
        ("softfault", "emptied") => {
            assert!((accesses / TWO..=accesses).contains(&served), "{row}");
        }
        ("softfault", _) => assert_eq!(served, 0.0, "{row}"),
        // A page that another space has faulted in is no fault in a table that both have.
        (_, "scan") => {}
        _ => assert!(served > 0.0 && served <= accesses, "{row}"),
    }
}

#[test]
fn soft_page_tables_need_no_pool() {
    let rows = run("soft,soft:share=i-mmap-rwsem");
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row["skipped"].is_null()));
}

#[test]
fn the_kernel_and_softfault_have_the_machines_pool() {
    let Some(_pool) = Pool::with(8) else { return };
    let rows = run("kernel,kernel-parked,softfault");
    assert_eq!(rows.len(), 12);
    assert!(rows.iter().all(|row| row["skipped"].is_null()));
    assert!(rows.iter().all(|row| row["huge"]["made_of"] == "hugetlb"));
}

/// With a mapping that stays, memory that is mapped again finds its page table; without one each touch is a fault.
#[test]
fn a_parked_mapping_keeps_page_tables() {
    let Some(_pool) = Pool::with(512) else { return };
    let dir = directory();
    let more = "--size 1G --processes 1 --seconds 0.3 --start populated --on kernel,kernel-parked,softfault";
    let more: Vec<&str> = more.split(' ').collect();
    let rows = lab("hugetlb", dir.path(), &more);
    let faults = |on: &str| {
        let row = rows.iter().find(|row| row["on"] == on).unwrap();
        assert!(row["skipped"].is_null() && row["gave_up"] == false, "{row}");
        number(row, "minor_faults") / number(row, "accesses")
    };
    if cfg!(target_arch = "x86_64") {
        let [kernel, parked, ours] = ["kernel", "kernel-parked", "softfault"].map(faults);
        assert!(
            kernel > 0.9 && parked < 0.2 && ours < 0.2,
            "{kernel} {parked} {ours}"
        );
    }
}

#[test]
fn a_pool_that_is_too_small_is_reported_with_the_remedy() {
    let dir = directory();
    let mut run = softfault(&["lab", "run", "hugetlb", "--size", "1024G", "--on", "kernel"]);
    let (code, out, _) = finish(run.current_dir(dir.path()));
    assert_eq!(code, 0);
    assert!(
        out.contains("not run") && out.contains("vm.nr_hugepages"),
        "{out}"
    );
}

#[test]
fn the_table_has_the_documents_lines() {
    let dir = directory();
    let arguments = "lab run hugetlb --on soft --size 4M --seconds 0.1 --start emptied,scan";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut run = softfault(&arguments);
    let (code, out, err) = finish(run.args(LATE).current_dir(dir.path()));
    assert_eq!(code, 0, "{err}");
    for word in ["touches/s", "waits", "total wait", "longest", "served here"] {
        assert!(out.contains(word), "{out}");
    }
}
