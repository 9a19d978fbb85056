//! What a command reads stays as it is, also where its output is given the same name.

use super::compare::stored;
use super::{directory, finish, refused, softfault, words};
use std::fs::{self, File};
use std::os::unix::fs::symlink;

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
    let mut run = softfault(&words("lab run sparse --on softfault --memory 8M --file"));
    run.arg(&big)
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

fn sim(arguments: &[&str]) -> std::process::Command {
    let mut command = softfault(&words(
        "sim pft --cores 1 --seeds 1 --seconds 0.0001 --region 64K",
    ));
    command.args(["--policies", "default"]).args(arguments);
    command
}
