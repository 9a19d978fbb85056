//! Mappings that are declined: the lines about them, and `--strict`.

use crate::cases::Cases;
use crate::elsewhere::Elsewhere;
use crate::nobody::is_root;
use crate::{MEMORY, assert_same, refuses, softfault_run, stats, text};
use std::fs::File;
use std::process::{Command, Output};

/// A file that somebody has open for writing, and the cases over it.
fn written(name: &str) -> Option<(Cases, File)> {
    let cases = Cases::of_its_own(name)?;
    let writer = File::options().append(true).open(&cases.data).unwrap();
    Some((cases, writer))
}

fn without(cases: &Cases, case: &str) -> Output {
    let mut without = Command::new(&cases.program);
    without.arg(case).arg(&cases.data).output().unwrap()
}

#[test]
fn a_file_that_somebody_writes_to_is_told_once() {
    let Some((cases, _writer)) = written("told") else {
        return;
    };
    let file = cases.stats_file("told");
    let with = cases.with("twice", &file).output().unwrap();
    let declined = [("open_for_writing".to_owned(), 2)];
    assert_eq!(stats::read(&file)[0].declined(), declined);
    let said = text(&with.stderr);
    let about = format!(
        ": {:?}, 25 MiB, is not under the budget: open_for_writing, ",
        cases.data
    );
    assert!(
        said.starts_with("softfault: cases[") && said.contains(&about),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    // As it says.
    assert!(said.contains("--assume-immutable takes it"), "{said}");
    let file = cases.stats_file("assumed");
    let mut with = cases.with("twice", &file);
    with.env("SOFTFAULT_RUN_ASSUME_IMMUTABLE", "1");
    assert_same(
        &with.output().unwrap(),
        &without(&cases, "twice"),
        "assumed",
    );
    assert_eq!(stats::read(&file)[0].taken(), 2);
}

#[test]
fn another_user_s_file_is_told() {
    let Some(cases) = Cases::get() else { return };
    if !is_root() {
        return softfault_skip::skipped("root", "only root can run a program as another user");
    }
    let place = Elsewhere::new();
    let program = place.copy(&cases.program, "cases");
    let data = place.copy(&cases.data, "data");
    let run = [
        "run",
        "--memory",
        "8M",
        "--",
        program.to_str().unwrap(),
        "whole",
        data.to_str().unwrap(),
    ];
    let with = place.softfault(&run).output().unwrap();
    assert_eq!(text(&with.stdout), text(&without(cases, "whole").stdout));
    let said = text(&with.stderr);
    let about = format!(": {data:?}, 25 MiB, is not under the budget: file_may_change, ");
    assert!(
        said.contains(&about) && said.contains("--assume-immutable takes it"),
        "{said}"
    );
    let strict = ["run", "--strict"].iter().chain(&run[1..]).copied();
    let strict: Vec<_> = strict.collect();
    refuses(&mut place.softfault(&strict), 125, "file_may_change");
}

#[test]
fn nothing_is_written_to_another_file_than_the_standard_error() {
    let Some((cases, _writer)) = written("no-standard-error") else {
        return;
    };
    let file = cases.stats_file("stats");
    let with = cases.with("no-standard-error", &file).output().unwrap();
    let declined = [("open_for_writing".to_owned(), 1)];
    assert_eq!(stats::read(&file)[0].declined(), declined);
    assert_same(
        &with,
        &without(&cases, "no-standard-error"),
        "a file by its number",
    );
}

/// Failed before: the report of `--stats` was written over its beginning.
#[test]
fn no_report_is_written_to_another_file_than_the_standard_error() {
    let Some(cases) = Cases::get() else { return };
    let own = crate::directory("own-file").join("own");
    std::fs::write(&own, "the program's").unwrap();
    let mut with = softfault_run();
    with.args(["--memory", MEMORY, "--stats", "--"]);
    with.arg(&cases.program).arg("own-file-by-its-number");
    let with = with.arg(&cases.data).env("OWN", &own).output().unwrap();
    assert!(with.status.success(), "{with:?}");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "the program's");
}

#[test]
fn a_standard_error_that_nobody_reads_ends_nothing() {
    let Some((cases, _writer)) = written("no-reader") else {
        return;
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut with = cases.with("whole", &cases.stats_file("stats"));
    let with = with.stderr(writer).output().unwrap();
    assert_same(&with, &without(&cases, "whole"), "no reader");
}

#[test]
fn a_strict_run_ends_where_a_mapping_is_declined() {
    let Some((cases, writer)) = written("strict") else {
        return;
    };
    let file = cases.stats_file("strict");
    let strict = |case: &str| {
        let mut strict = cases.with(case, &file);
        strict.env("SOFTFAULT_RUN_STRICT", "1");
        strict
    };
    let why = format!(
        "{:?}, 25 MiB, is not under the budget: open_for_writing, ",
        cases.data
    );
    refuses(&mut strict("whole"), 125, &why);
    // A file that is left out has no budget.
    let mut left_out = strict("whole");
    left_out.env("SOFTFAULT_RUN_EXCLUDE", "data");
    assert_same(
        &left_out.output().unwrap(),
        &without(&cases, "whole"),
        "left out",
    );
    // However it is mapped.
    let mut left_out = strict("shared-writable");
    left_out.env("SOFTFAULT_RUN_EXCLUDE", "data");
    assert_same(
        &left_out.output().unwrap(),
        &without(&cases, "shared-writable"),
        "left out",
    );
    drop(writer);
    crate::unwritten::wait(&cases.data);
    let all_taken = strict("whole").output().unwrap();
    assert_same(&all_taken, &without(&cases, "whole"), "all taken");
    // By a descriptor that is open for writing; before that come small mappings, which are none of its business.
    refuses(&mut strict("declined"), 125, "o_rdwr");
}
