//! `lab report`: the page's contents, and the files that it refuses. Its looks are `report_in_browser`'s.

use super::compare::stored;
use super::{directory, finish, refused, softfault};
use serde_json::Value;
use std::path::Path;

/// The page over stored results.
pub fn page(dir: &Path, results: &[String]) -> String {
    let path = dir.join("page.html");
    let mut report = softfault(&["lab", "report", "-o", path.to_str().unwrap()]);
    let (code, out, err) = finish(report.args(results));
    assert_eq!((code, &err[..]), (0, ""));
    assert_eq!(
        out.trim_end(),
        path.to_str().unwrap(),
        "it says where the page is"
    );
    std::fs::read_to_string(path).unwrap()
}

/// All stored results.
pub fn all() -> Vec<String> {
    [
        "random",
        "sparse",
        "thrash",
        "edges",
        "miss-accounting",
        "retries",
        "warm-start",
        "pft",
        "storm",
        "swapping",
    ]
    .map(|name| stored(&format!("{name}.json")))
    .into()
}

#[test]
fn the_page_needs_nothing_beside_itself() {
    let dir = directory();
    let page = page(dir.path(), &all());
    for outside in [
        "http:", "https:", "//", "src=", "href=", "@import", "url(", "<script", "<link",
    ] {
        // The style's comments and the policy are not ways out.
        let page = page.replace("http-equiv", "");
        assert!(!page.contains(outside), "{outside} is on the page");
    }
    assert!(page.contains("default-src 'none'"));
}

/// Of a kernel at two read-aheads, the cards compare with the one that was measured first.
#[test]
fn cards_are_against_the_first_read_ahead() {
    let dir = directory();
    let text = std::fs::read_to_string(stored("sparse.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    let at_both = |row: &Value| {
        if row["on"] != "kernel" {
            return vec![row.clone()];
        }
        let (mut low, mut high) = (row.clone(), row.clone());
        low["on"] = "kernel:read_ahead_kb=128".into();
        low["accesses_per_s"] = (2.0 * row["accesses_per_s"].as_f64().unwrap()).into();
        high["on"] = "kernel:read_ahead_kb=8192".into();
        vec![low, high]
    };
    let rows: Vec<Value> = rows.iter().flat_map(at_both).collect();
    let path = dir.path().join("rows.json");
    std::fs::write(&path, serde_json::to_string(&rows).unwrap()).unwrap();
    let page = page(dir.path(), &[path.to_str().unwrap().into()]);
    let (_, cards) = page.split_once("The most telling ratios").unwrap();
    let (cards, _) = cards.split_once("</section>").unwrap();
    assert!(
        cards.contains("33.3 ×") && !cards.contains("66.6 ×"),
        "{cards}"
    );
    assert!(page.contains("its device set to 8192 KiB of read-ahead"));
}

/// Of a thrash the cards compare the threads' turns, and of holes nothing.
#[test]
fn cards_go_by_the_median_threads_rounds() {
    let dir = directory();
    let row = |pattern: &str, on: &str, all: u32, least: u32, median: u32| {
        serde_json::json!({
            "workload": "thrash", "pattern": pattern, "on": on, "threads": 100, "accesses": 1000,
            "elapsed_s": 3.0, "rounds_per_s": all, "rounds": 3 * all, "min_rounds": least, "median_rounds": median,
        })
    };
    let rows = [
        row("data", "kernel", 200, 6, 7),
        row("data", "pread-cached", 80, 10, 12),
        row("data", "softfault", 13_000, 2, 21),
        row("holes", "kernel", 1, 0, 0),
        row("holes", "softfault", 100_000, 900, 1000),
    ];
    let path = dir.path().join("rows.json");
    std::fs::write(&path, serde_json::to_string(&rows).unwrap()).unwrap();
    let page = page(dir.path(), &[path.to_str().unwrap().into()]);
    let (_, cards) = page.split_once("The most telling ratios").unwrap();
    let (cards, _) = cards.split_once("</section>").unwrap();
    assert!(cards.contains("3.00 ×") && cards.contains("7.00 rounds/s of the median thread"));
    assert!(
        cards.contains("which had 21 of them; the least 2"),
        "{cards}"
    );
    assert!(!cards.contains("holes"), "{cards}");
    assert!(cards.contains("1.75 ×") && cards.contains("a cache of the same size"));
}

#[test]
fn figures_are_there_with_their_units() {
    let dir = directory();
    let page = page(dir.path(), &[stored("sparse.json")]);
    // 20,977 pages/s against 315; 5.15 GiB read against 6.09 MiB.
    for text in [
        "66.6 ×",
        "20,977 /s",
        "824 × the bytes used",
        "5.15 GiB",
        "6.09 MiB",
        "23.1 µs",
        "9.15 MiB",
    ] {
        assert!(page.contains(text), "no {text}");
    }
    for text in [
        "File\u{a0}64\u{a0}MiB",
        "medians\u{a0}of\u{a0}3\u{a0}runs",
        "softfault lab run sparse",
        "--on kernel,pread,softfault",
        "--touch 10",
        "Linux",
        "cgroup v1",
    ] {
        let words = page.replace("<span>", "").replace("</span>", "");
        assert!(words.contains(text), "no {text}");
    }
}

#[test]
fn policies_and_workloads_have_their_charts() {
    let dir = directory();
    let names = ["miss-accounting", "retries", "warm-start", "pft", "storm"];
    let page = page(
        dir.path(),
        &names.map(|name| stored(&format!("{name}.json"))),
    );
    for text in [
        // The matrix, in document 003's words.
        "Read for a byte used, by the rule for a hit",
        "<strong>P2-only</strong><br>softfault:miss=p2",
        ">2,048 ×</td>",
        // Document 000's ratio, and the runs that did not end.
        "Waited in vain",
        "45.0 %",
        "437,017, 45.0 %",
        "0.0556 /s, given up",
        "given up 1 of 2, failed 1 of 2",
        // Waits of threads and for locks.
        "Longest wait: high-priority touch",
        "130 ms",
        "VMA locks: mixed, 16 threads",
        "10.5 ×",
        // Faults over threads, and their cost.
        "Speed over threads: own",
        "Faults for CPU time over threads: shared",
        "64\u{a0}MiB\u{a0}of\u{a0}memory\u{a0}for\u{a0}each\u{a0}thread",
        "Maps",
        "30,500 /s",
        // The meaning of a policy, and how to measure it again.
        "a fault keeps its VMA lock over I/O",
        "--threads 1,21,56",
    ] {
        let words = page.replace("<span>", "").replace("</span>", "");
        assert!(words.contains(text), "no {text}");
    }
}

#[test]
fn workloads_that_swap_stand_beside_the_device_the_kernel_and_an_lru() {
    let dir = directory();
    let page = page(dir.path(), &[stored("swapping.json")]);
    for text in [
        "<h2>anon</h2>",
        "<h2>snapshot</h2>",
        "Found in memory",
        "81.5 %, LRU 82.5 %",
        "of the speed of direct reads and writes",
        "not run: cannot swap to swap: Operation not permitted",
        "over budget",
        "Longest wait: touch at the fork",
        "4\u{a0}GiB\u{a0}of\u{a0}memory\u{a0}touched",
        "lab run anon --on direct,softfault,kernel --pattern uniform,zipf --file-size 4G",
    ] {
        let words = page.replace("<span>", "").replace("</span>", "");
        assert!(words.contains(text), "no {text}");
    }
}

#[test]
fn rows_without_figures_are_shown_as_that_and_names_are_only_text() {
    let dir = directory();
    let page = page(dir.path(), &[stored("edges.json")]);
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(page.contains("the child died") && page.contains("given up"));
    assert!(page.contains("where the other ended not one round"));
    for nothing in ["NaN", "inf%", ":inf", "-inf", "None", "null"] {
        assert!(!page.contains(nothing), "{nothing} is on the page");
    }
}

#[test]
fn files_that_measured_the_same_are_told_apart() {
    let dir = directory();
    let copy = dir.path().join("later.json");
    std::fs::copy(stored("sparse.json"), &copy).unwrap();
    let both = [stored("sparse.json"), copy.to_str().unwrap().into()];
    let page = page(dir.path(), &both);
    for on in ["kernel (sparse)", "kernel (later)", "softfault (later)"] {
        assert!(page.contains(on), "no {on}");
    }
}

#[test]
fn an_invalid_page_size_is_refused() {
    let dir = directory();
    let here = dir.path().to_str().unwrap();
    let good = stored("sparse.json");
    let refuse = |arguments: &[&str], word: &str| {
        refused(softfault(&["lab", "report"]).args(arguments), word);
    };
    refuse(&[&good, "-o", here], "is a directory");
    refuse(&[&good, "-o", "/no/such/place.html"], "no such directory");
    let output = dir.path().join("page.html");
    refuse(
        &["/no/such.json", "-o", output.to_str().unwrap()],
        "/no/such.json",
    );
    refuse(
        &[&stored("report.rs"), "-o", output.to_str().unwrap()],
        "cannot read",
    );
    assert!(!output.exists());
}
