//! `lab compare`: the tables, and the files that it refuses.

use super::{directory, finish, refused, softfault};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A stored result: `sparse`, `random` and `thrash` are real runs; the others are made by hand: `retries`,
/// `warm-start`, `miss-accounting` and `pft` of the figures of documents 000, 002, 003 and 004 and of
/// invented ones beside them, `storm` and `swapping` of invented ones, `edges` of rows that have next to none.
pub fn stored(name: &str) -> String {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results");
    results.join(name).to_str().unwrap().into()
}

/// The output of `compare`.
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

/// The whole text, as it was checked by hand against the documents.
#[test]
fn tables_agree_with_the_documented_ones() {
    let before_after = |before: &'static str, after| vec!["--before", before, "--after", after];
    let retries = ["mmap-lock", "vma-lock"].map(|on| format!("softfault:retry={on}+pin=no"));
    for (name, arguments) in [
        (
            "warm-start",
            vec!["--before", &retries[0], "--after", &retries[1]],
        ),
        ("retries", vec![]),
        ("miss-accounting", vec![]),
        ("pft", before_after("soft:lock=rwsem", "soft")),
        ("storm", vec!["--before", "softfault:retry=held"]),
        (
            "swapping",
            vec!["--before", "direct", "--on", "softfault,kernel"],
        ),
    ] {
        let file = stored(&format!("{name}.json"));
        let text = compared(&[&[&file[..]], &arguments[..]].concat());
        let expected = std::fs::read_to_string(stored(&format!("expected/{name}.txt"))).unwrap();
        for (at, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
            assert_eq!(line, expected, "{name}, line {}", at + 1);
        }
        assert_eq!(text, expected, "{name}: one is longer");
    }
}

#[test]
fn document_004s_lines_are_starred_where_the_runs_tell() {
    let text = compared(&[
        &stored("pft.json"),
        "--before",
        "soft:lock=rwsem",
        "--after",
        "soft",
    ]);
    // The document's changes, of runs around its means.
    for (rate, change) in [
        ("faults/cpu-1", "( -0.28%)"),
        ("faults/cpu-21", "* 14.76%*"),
        ("faults/sec-21", "* 14.77%*"),
        ("faults/sec-56", "* 10.85%*"),
    ] {
        let cells = line(&text, &format!("Hmean  pft own {rate}")).join(" ");
        assert!(
            cells
                .replace("( ", "(")
                .ends_with(&change.replace("( ", "(")),
            "{rate}: {cells}"
        );
        // A single run tells nothing.
        let cells = line(&text, &format!("Hmean  pft shared {rate}")).join(" ");
        assert!(cells.ends_with("%?"), "{rate}: {cells}");
    }
}

#[test]
fn document_003s_ablation_is_one_matrix_with_ratios() {
    let text = compared(&[&stored("miss-accounting.json")]);
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        squeezed.contains(
            "sparse stride2053 1 409.584 GiB/193.700s 409.584 GiB/197.645s (1.0000) \
             15.722 GiB/5.485s (0.0384) 0.970 GiB/3.685s (0.0024)"
        ),
        "{text}"
    );
    // Variants among others have their matrix beside the one of all.
    let dir = directory();
    let more = changed(dir.path(), "miss-accounting.json", |rows| {
        let mut kernel = rows[0].clone();
        kernel["on"] = "kernel".into();
        rows.insert(0, kernel);
    });
    let text = compared(&[more.to_str().unwrap()]);
    assert!(text.starts_with("each against kernel\n"), "{text}");
    assert!(text.contains("in brackets, bytes against kernel"), "{text}");
    assert!(text.contains("bytes against baseline"), "{text}");
}

#[test]
fn two_files_can_be_compared_across_engines() {
    let file = stored("warm-start.json");
    let text = compared(&[
        &file,
        &file,
        "--before",
        "kernel",
        "--after",
        "softfault:retry=vma-lock+pin=yes",
    ]);
    assert!(
        text.contains("after:  softfault:retry=vma-lock+pin=yes ("),
        "{text}"
    );
    assert_eq!(
        line(&text, "High-priority touch"),
        ["905,000", "61,000", "-93.26%"]
    );
    // The kernel tells nobody of its locks: there is nothing to compare.
    assert!(!text.contains("Lock Acquisitions"), "{text}");
    let text = compared(&[&file, &file, "--on", "softfault,kernel"]);
    assert!(
        text.contains("warm-start mixed softfault rounds/s-16"),
        "{text}"
    );
    assert!(!text.contains("pin=no"), "{text}");
}

#[test]
fn document_002s_tables_as_it_prints_them() {
    let on = "softfault:retry=mmap-lock+pin=no,softfault:retry=vma-lock+pin=no";
    let text = compared(&[&stored("edges.json"), "--on", on]);
    for (metric, figures) in [
        ("Read Lock Count", ["20,010", "5,719", "-71.42%"]),
        ("Read Total Wait (us)", ["10,695,877", "408,436", "-96.18%"]),
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
    assert!(!text.contains("%*") && text.contains("not known"), "{text}");
    let hmean = line(&text, "Hmean  thrash data rounds/s-500").join(" ");
    assert!(
        hmean.starts_with("0.0000+ ") && hmean.ends_with("N/A?"),
        "{hmean}"
    );
    assert!(text.contains("given up") && text.contains("s+"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn rows_that_one_side_lacks_are_named() {
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
fn invalid_results_are_refused() {
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
    refuse(
        &[&good, "--on", "kernel"],
        "nothing to compare with kernel: ",
    );
    refuse(
        &[&good, "--before", "kernel", "--after", "kernel"],
        "sparse.json has kernel, pread, softfault",
    );
    refuse(
        &[&good, "--before", "soft"],
        "no rows on soft: it has kernel, pread, softfault",
    );
    refuse(
        &[&good, "--before", "kernel", "--after", "softfault:pin=no"],
        "no rows on softfault:pin=no: it has kernel, pread, softfault",
    );
    refuse(
        &[&good, &good, "--before", "kernel"],
        "--before and --after go together",
    );
    refuse(
        &[&good, "--on", "kernel,umap"],
        "no rows on umap: it has kernel, pread, softfault",
    );
    refuse(&[&good, &stored("random.json")], "nothing to compare");
    refuse(&[&good, "--after", "kernel"], "--before");
}

#[test]
fn the_help_explains_the_marks() {
    let (code, out, _) = finish(&mut softfault(&["lab", "compare", "--help"]));
    assert_eq!(code, 0);
    assert!(
        out.contains("Welch's t-test") && out.contains("p < 0.05"),
        "{out}"
    );
}
