//! The rows of `docs/run.md`: all that `--stats` says, and every reason for which a mapping is declined.

use crate::cases::Cases;
use crate::{softfault_run, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const DOCUMENT: &str = include_str!("../../../../docs/run.md");
const REASONS: &str = include_str!("../../../preload/src/count.rs");

/// Rows of the table below a heading, without its head.
fn rows(heading: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let (_, below) = DOCUMENT.split_once(&format!("\n## {heading}\n")).unwrap();
    let table = below.lines().skip_while(|line| !line.starts_with("| "));
    let table = table.take_while(|line| line.starts_with('|'));
    let cells = |row: &'static str| row.split('|').skip(1).map(str::trim).collect();
    table.skip(2).map(cells)
}

/// The words marked as code in one cell of each row.
fn names(heading: &str, cell: usize) -> BTreeSet<&'static str> {
    let cells = rows(heading).map(move |row| row[cell]);
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

/// `--stats` of a program that reads a file, in one form. The directory of its swap may be removed before it begins.
fn stats(cases: &Cases, form: &str, swap: &Path, is_removed: bool) -> String {
    let mut directory_and_size = swap.as_os_str().to_owned();
    directory_and_size.push(":64M");
    let file = cases.stats_file("documented");
    let mut run = softfault_run();
    run.args(["--memory", "8M", "--swap"])
        .arg(directory_and_size);
    run.arg("--stats-file").arg(&file);
    run.arg(format!("--stats={form}")).arg("--");
    if is_removed {
        run.args(["sh", "-c", "rmdir \"$0\" && exec \"$@\""])
            .arg(swap);
    }
    let run = run.arg(&cases.program).arg("calls").arg(&cases.data);
    let run = run.output().unwrap();
    assert!(run.status.success(), "{}", text(&run.stderr));
    std::fs::read_to_string(file).unwrap()
}

/// One with an engine and something that was declined, and one without an engine: no swap file can be made.
fn both(form: &str) -> [String; 2] {
    let cases = Cases::get().expect("looked at before");
    let swap = cases.directory.join(format!("swap-{form}"));
    std::fs::create_dir_all(&swap).unwrap();
    [false, true].map(|is_removed| stats(cases, form, &swap, is_removed))
}

#[test]
fn statistics_in_text() {
    if Cases::get().is_none() {
        return;
    }
    let both = both("text");
    let mut said = BTreeSet::new();
    for line in both.iter().flat_map(|text| text.lines()) {
        let (_, line) = line.split_once("]: ").expect("a name and a number");
        if line.starts_with("no engine: ") {
            said.insert("no engine");
        } else if line.starts_with("declined ") {
            said.extend(["declined REASON", "bytes"]);
        } else {
            said.extend(
                line.split(' ')
                    .map(|word| word.split_once('=').expect("a figure").0),
            );
        }
    }
    assert_eq!(said, names("The report of `--stats`", 0));
}

#[test]
fn statistics_in_json() {
    if Cases::get().is_none() {
        return;
    }
    let mut said = BTreeSet::new();
    for line in both("json") {
        let all: Value = serde_json::from_str(&line).unwrap();
        leaves("", &all, &mut said);
    }
    let said: BTreeSet<_> = said.iter().map(|name| &name[..]).collect();
    assert_eq!(said, names("The report of `--stats`", 1));
}

/// Paths of all values that have no parts.
fn leaves(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    let Some(parts) = value.as_object() else {
        found.insert(path.to_owned());
        return;
    };
    for (name, part) in parts {
        let name = match path {
            "" => name.clone(),
            "declined" => "declined.REASON".to_owned(),
            _ => format!("{path}.{name}"),
        };
        leaves(&name, part, found);
    }
}

#[test]
fn every_reason_has_a_row() {
    let (_, all) = REASONS.split_once("pub const ALL").unwrap();
    let (all, _) = all.split_once("];").unwrap();
    let is_name = |text: &&str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let texts = all.split('"').skip(1).step_by(2);
    let reasons: BTreeSet<_> = texts.filter(is_name).collect();
    assert!(reasons.len() > 10, "{reasons:?}");
    assert_eq!(reasons, names("Declined mappings", 0));
}
