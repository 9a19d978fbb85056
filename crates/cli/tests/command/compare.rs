//! `lab compare`: the tables, and what it refuses.

use super::{directory, finish, refused, softfault};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A stored result: `sparse`, `random` and `thrash` are real runs, `edges` is made by hand of the
/// documents' own figures and of rows that have next to none.
pub fn stored(name: &str) -> String {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results");
    results.join(name).to_str().unwrap().into()
}

/// What `compare` prints.
fn compared(arguments: &[&str]) -> String {
    let (code, out, err) = finish(softfault(&["lab", "compare"]).args(arguments));
    assert_eq!((code, &err[..]), (0, ""), "{arguments:?}");
    out
}

/// The line that starts with `start`, its columns.
fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let found = text
        .lines()
        .find(|line| line.trim_start().starts_with(start));
    let found = found.unwrap_or_else(|| panic!("no line {start}: {text}"));
    found.trim_start()[start.len()..]
        .split_whitespace()
        .collect()
}

/// The rows of a stored result, changed, in a file of their own.
fn changed(dir: &Path, name: &str, change: impl Fn(&mut Vec<Value>)) -> PathBuf {
    let text = std::fs::read_to_string(stored(name)).unwrap();
    let mut rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    change(&mut rows);
    let path = dir.join(format!("changed-{name}"));
    std::fs::write(&path, serde_json::to_string(&rows).unwrap()).unwrap();
    path
}

#[test]
fn two_engines_of_one_file_in_mmtests_shape() {
    let text = compared(&[&stored("sparse.json"), "--on", "kernel,softfault"]);
    let random = line(&text, "Hmean  sparse random pages/s-1");
    // 313.6 and 20,667 pages/s: the stored runs', by another program.
    assert_eq!(
        random,
        ["313.5949", "(", "0.00%)", "20667.3287", "*6490.45%*"]
    );
    let sequential = line(&text, "Hmean  sparse sequential pages/s-1").join(" ");
    assert!(sequential.ends_with("( 0.37%)"), "{sequential}");
    let matrix = line(&text, "sparse random            1");
    assert_eq!(matrix, ["5.148258", "GiB/5.197s", "0.005943", "GiB/0.078s"]);
    assert!(!text.contains("Not compared"), "{text}");
}

#[test]
fn document_002s_tables_as_it_prints_them() {
    let on = "softfault:retry=mmap-lock+pin=no,softfault:retry=vma-lock+pin=no";
    let text = compared(&[&stored("edges.json"), "--on", on]);
    for (metric, figures) in [
        ("Read Lock Count", ["20,010", "5,719", "-71.42%"]),
        (
            "Read Lock Total Wait (us)",
            ["10,695,877", "408,436", "-96.18%"],
        ),
        ("Write Lock Count", ["838", "909", "+8.47%"]),
        ("[0, 1)", ["9,927", "4,286", "-56.82%"]),
        ("[1000, 10000)", ["328", "9", "-97.26%"]),
        ("[1000000, +)", ["0", "0", "N/A"]),
    ] {
        assert_eq!(line(&text, metric), figures, "{text}");
    }
    assert!(
        !text.contains("VMA Lock"),
        "a lock that nobody took: {text}"
    );
    let without = compared(&[&stored("edges.json"), "--on", on, "--no-waits"]);
    assert!(!without.contains("Range (us)"), "{without}");
}

#[test]
fn document_000s_table_with_its_ratio() {
    let on = "softfault:retry=mmap-lock+pin=no,softfault:retry=vma-lock+pin=no";
    let text = compared(&[&stored("edges.json"), "--on", on]);
    for figures in [
        "22,711 | 37.85 /s | 45.04 | 970,078 | 436,956 |",
        "54,428 | 90.71 /s | 1.69 | 1,204,124 | 20,398 |",
    ] {
        let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(figures), "{text}");
    }
}

#[test]
fn one_run_is_never_marked_and_a_run_given_up_is_said_to_be() {
    let text = compared(&[
        &stored("edges.json"),
        "--on",
        "kernel,softfault:retry=vma-lock+pin=no",
    ]);
    assert!(
        !text.contains("%*") && text.contains("single run"),
        "{text}"
    );
    let hmean = line(&text, "Hmean  thrash data rounds/s-500").join(" ");
    assert!(
        hmean.starts_with("0.0000") && hmean.ends_with("N/A)"),
        "{hmean}"
    );
    assert!(text.contains("given up") && text.contains("s+"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn what_one_side_lacks_is_named() {
    let dir = directory();
    let after = changed(dir.path(), "sparse.json", |rows| {
        rows.retain(|row| !(row["pattern"] == "random" && row["on"] == "pread"));
        for row in rows.iter_mut().filter(|row| row["pattern"] == "sequential") {
            row["threads"] = 2.into();
        }
        let failed = rows.iter_mut().find(|row| row["on"] == "kernel").unwrap();
        failed["error"] = "it died".into();
    });
    let text = compared(&[&stored("sparse.json"), after.to_str().unwrap()]);
    let lonely = text
        .split("Not compared:")
        .nth(1)
        .expect("rows that are lonely");
    for line in [
        "sparse random, 1 thread, file 64.0 MiB, memory 32.0 MiB on pread: only before",
        "sparse sequential, 1 thread, file 64.0 MiB, memory 32.0 MiB on kernel: only before",
        "sparse sequential, 2 threads, file 64.0 MiB, memory 32.0 MiB on kernel: only after",
        "on kernel: 1 of 3 runs failed after",
    ] {
        assert!(lonely.contains(line), "{line}: {lonely}");
    }
    assert!(!lonely.contains("random, 1 thread, file 64.0 MiB, memory 32.0 MiB on softfault"));
    // The same on both sides: no change, no mark.
    assert_eq!(
        line(&text, "Hmean  sparse random softfault pages/s-1")[4..],
        ["(", "0.00%)"]
    );
}

#[test]
fn a_result_can_come_from_a_pipe() {
    let file = std::fs::File::open(stored("sparse.json")).unwrap();
    let mut compare = softfault(&["lab", "compare", "-", "--on", "kernel,pread"]);
    let (code, out, err) = finish(compare.stdin(Stdio::from(file)));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("Hmean"), "{out}");
}

#[test]
fn what_is_no_result_is_refused() {
    let dir = directory();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = stored("sparse.json");
    let refuse = |arguments: &[&str], word: &str| {
        refused(softfault(&["lab", "compare"]).args(arguments), word);
    };
    refuse(&[&good, "/no/such/file"], "/no/such/file");
    refuse(&[&good, dir.path().to_str().unwrap()], "directory");
    refuse(
        &[&good, &file("a.json", "{\"rows\": [")],
        "a.json: not JSON",
    );
    refuse(&[&good, &file("b.json", "{}")], "not an array");
    refuse(&[&good, &file("c.json", "[]")], "no rows");
    refuse(
        &[&good, &file("d.json", r#"[{"workload":"sparse"}]"#)],
        "row 1: missing field",
    );
    refuse(&[&good], "two sides");
    refuse(&[&good, "--on", "kernel"], "two sides");
    refuse(&[&good, "--on", "kernel,pread,softfault"], "two sides");
    refuse(
        &[&good, "--on", "kernel,umap"],
        "no rows on umap: it has kernel, pread, softfault",
    );
    refuse(&[&good, &stored("random.json")], "nothing to compare");
}

#[test]
fn the_help_says_what_a_mark_means() {
    let (code, out, _) = finish(&mut softfault(&["lab", "compare", "--help"]));
    assert_eq!(code, 0);
    assert!(
        out.contains("Welch's t-test") && out.contains("p < 0.05"),
        "{out}"
    );
}
