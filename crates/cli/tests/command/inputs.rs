//! The files that a command reads stay as they are, also where its output is given the same name.

use super::compare::stored;
use super::{directory, finish, refused, softfault, words};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;

/// Failed before: exit code 0, and the results were a page.
#[test]
fn a_page_does_not_take_the_place_of_results() {
    let dir = directory();
    let [good, other, link, hard] =
        ["good", "other", "link", "hard"].map(|name| dir.path().join(name));
    for path in [&good, &other] {
        fs::copy(stored("random.json"), path).unwrap();
    }
    symlink(&good, &link).unwrap();
    fs::hard_link(&good, &hard).unwrap();
    let before = fs::read(&good).unwrap();
    for end in ["/", "/.", "//"] {
        let mut report = softfault(&["lab", "report"]);
        let output = format!("{}{end}", good.display());
        report.arg(&good).args(["-o", &output]);
        refused(&mut report, "a directory's name");
    }
    for output in [&good, &link, &hard] {
        let mut report = softfault(&["lab", "report"]);
        report.arg(&good).arg("-o").arg(output);
        refused(&mut report, "the command reads it");
    }
    let mut report = softfault(&["lab", "report", "-", "-o"]);
    report.arg(&good).stdin(File::open(&good).unwrap());
    refused(&mut report, "the command reads it");
    // A forgotten name before `*.json`.
    let mut report = softfault(&["lab", "report", "-o"]);
    refused(report.arg(&good).arg(&other), "not an HTML page");
    let mut tour = softfault(&["tour", "--memory", "8M", "--dir"]);
    tour.arg(dir.path()).arg("--report").arg(&good);
    refused(&mut tour, "not an HTML page");
    assert_eq!(fs::read(&good).unwrap(), before);
    // A page may be made anew, and an empty file is nobody's loss.
    let page = dir.path().join("page.html");
    File::create(&page).unwrap();
    for _ in 0..2 {
        let mut report = softfault(&["lab", "report", "-o"]);
        let (code, _, err) = finish(report.arg(&page).arg(&good));
        assert_eq!(code, 0, "{err}");
    }
}

/// Failed before: exit code 0, and the file was the results.
#[test]
fn results_do_not_take_the_place_of_what_was_measured() {
    let dir = directory();
    let big = dir.path().join("big");
    fs::write(&big, vec![7; 1 << 20]).unwrap();
    let mut run = softfault(&words("lab run sparse --on softfault --memory 8M"));
    run.arg("--file")
        .arg(&big)
        .arg("--json")
        .arg(&big)
        .arg("--dir")
        .arg(dir.path());
    refused(&mut run, "the command reads it");
    assert_eq!(fs::read(&big).unwrap(), vec![7; 1 << 20]);

    let topology = dir.path().join("t.json");
    let (code, preset, _) = finish(&mut softfault(&["sim", "presets", "x86-256"]));
    assert_eq!(code, 0);
    fs::write(&topology, &preset).unwrap();
    let name = topology.to_str().unwrap();
    for output in ["--json", "--trace"] {
        let mut sim = sim(&["--topology", name, output, name]);
        refused(&mut sim, "the command reads it");
    }
    let lacking = [
        "sim",
        "calibrate",
        "--quick",
        "--lacking",
        name,
        "--json",
        name,
    ];
    refused(&mut softfault(&lacking), "the command reads it");
    assert_eq!(fs::read_to_string(&topology).unwrap(), preset);
}

/// Failed before: "the command reads it".
#[test]
fn the_name_of_a_preset_is_no_input() {
    let dir = directory();
    // Also where such a file is there.
    for _ in 0..2 {
        let mut sim = sim(&["--topology", "x86-256", "--json", "x86-256"]);
        let (code, _, err) = finish(sim.current_dir(dir.path()));
        assert_eq!(code, 0, "{err}");
        let rows = fs::read_to_string(dir.path().join("x86-256")).unwrap();
        assert!(rows.starts_with('['), "{rows}");
    }
}

/// Failed before: exit code 0, and the JSON was gone.
#[test]
fn a_file_is_not_both_rows_and_trace() {
    let dir = directory();
    let (both, link) = (dir.path().join("both"), dir.path().join("link"));
    symlink("both", &link).unwrap();
    let [both, link] = [&both, &link].map(|path| path.to_str().unwrap());
    for (json, trace) in [(both, both), (both, link)] {
        let mut sim = sim(&["--json", json, "--trace", trace]);
        refused(&mut sim, "--json and --trace are the same file");
    }
    let (code, _, err) = finish(&mut sim(&["--json", both, "--trace", "-"]));
    assert_eq!(code, 0, "{err}");
    fs::write(both, "[]").unwrap();
    refused(&mut sim(&["--json", link, "--trace", both]), "same file");
    assert_eq!(fs::read_to_string(both).unwrap(), "[]");
}

/// Failed before: half of the new one was there.
#[test]
fn an_old_trace_stays_until_the_new_one_is_written() {
    let dir = directory();
    let path = dir.path().join("trace");
    fs::write(&path, "old").unwrap();
    let trace = || sim(&["--trace", path.to_str().unwrap()]);
    let mut limited = trace();
    // SAFETY: only a system call; nothing is allocated.
    unsafe { limited.pre_exec(super::outputs::no_longer_than::<100>) };
    let (code, _, err) = finish(&mut limited);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("cannot write"), "{err}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let (code, _, err) = finish(&mut trace());
    assert_eq!(code, 0, "{err}");
    assert!(fs::read_to_string(&path).unwrap().lines().count() > 10);
}

/// Failed before: the command read until memory ended.
#[test]
fn results_without_end_are_refused() {
    refused(&mut softfault(&["lab", "compare", "/dev/zero"]), "so large");
}

/// Failed before: they came to the terminal as they were.
#[test]
fn names_of_results_cannot_command_a_terminal() {
    let dir = directory();
    let path = dir.path().join("results.json");
    let text = fs::read_to_string(stored("random.json")).unwrap();
    let text = text.replace("\"random\"", "\"ran\\u001b[31mdom\\u009b\"");
    fs::write(&path, text).unwrap();
    let (code, out, err) = finish(softfault(&["lab", "compare"]).arg(&path));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("ran\\u{1b}[31mdom"), "{out}");
    assert!(
        !out.contains(|c: char| c.is_control() && c != '\n'),
        "{out}"
    );
}

/// Failed before: the last of them was taken.
#[test]
fn what_is_there_twice_is_refused() {
    for line in [
        "lab run sparse --on softfault:lock=rwsem+lock=refcount",
        "lab run sparse --on softfault:reads=direct+reads=cached",
        "lab profile --kind cold,cold",
        "lab profile --faults signals,signals",
        "sim pft --cores 1,1",
        "sim pft --policies pin=no+pin=no",
    ] {
        refused(&mut softfault(&words(line)), "twice");
    }
}

fn sim(arguments: &[&str]) -> std::process::Command {
    let mut command = softfault(&words(
        "sim pft --cores 1 --seeds 1 --seconds 0.0001 --region 64K",
    ));
    command.args(["--policies", "default"]).args(arguments);
    command
}
