//! Document 001's lines: faults on huge pages and what they waited for, as bands, the document's own beneath.

use super::band::Band;
use super::documents::documents;
use super::rates::{distinct, title};
use super::row::{Huge, Row};
use crate::compare::cells::{heading, plain, titled};
use crate::results::figure;

/// What a line is called, its figure, and whether the second policy is to have more of it (`Some(true)`), less,
/// or neither.
type Line = (&'static str, fn(&Row, &Huge) -> f64, Option<bool>);

/// Those that the document has come first, and are called as there.
const LINES: [Line; 10] = [
    ("faults/sec", |row, _| row.faults_per_s, Some(true)),
    ("num faults", |row, _| row.faults as f64, None),
    ("num waits", |_, huge| huge.waits as f64, Some(false)),
    ("wait time (ms)", |_, huge| huge.wait_total_ms, Some(false)),
    (
        "max flt wait time (us)",
        |_, huge| huge.longest_wait_us,
        Some(false),
    ),
    (
        "rounds/sec",
        |row, _| row.rounds as f64 / row.elapsed_s,
        Some(true),
    ),
    ("pages filled", |_, huge| huge.filled as f64, None),
    ("leaf tables shared", |_, huge| huge.shared as f64, None),
    ("leaf tables unshared", |_, huge| huge.unshared as f64, None),
    (
        "table KiB",
        |_, huge| huge.table_bytes as f64 / 1024.0,
        None,
    ),
];

/// A table for each number of cores.
pub fn table(rows: &[Row]) -> String {
    let policies = distinct(rows, |row| row.policy.clone());
    let mut header = vec![String::new()];
    for (at, policy) in policies.iter().enumerate() {
        header.push(heading(policy));
        header.extend((at > 0).then(|| "Times".to_owned()));
    }
    let mut text = String::new();
    for cores in distinct(rows, |row| row.cores) {
        let mut table = plain(&header, 1);
        for line in LINES {
            let of = |policy: &String| figures(rows, cores, policy, line.1);
            let figures: Vec<Vec<f64>> = policies.iter().map(of).collect();
            table.add_row(cells(&line, &figures));
        }
        let threads = rows.iter().find(|row| row.cores == cores);
        let threads = threads.map_or(0, |row| row.threads);
        let title = format!("{}; {cores} cores, {threads} spaces", title(rows));
        text += &titled(&title, &table);
    }
    text + &document()
}

/// A figure of each seed for which no policy failed.
fn figures(rows: &[Row], cores: usize, policy: &str, of: fn(&Row, &Huge) -> f64) -> Vec<f64> {
    let failed = |seed| {
        rows.iter()
            .any(|row| row.error.is_some() && (row.cores, row.seed) == (cores, seed))
    };
    let like = rows
        .iter()
        .filter(|row| row.cores == cores && row.policy == policy && !failed(row.seed));
    like.filter_map(|row| row.huge.as_ref().map(|huge| of(row, huge)))
        .collect()
}

fn cells(line: &Line, figures: &[Vec<f64>]) -> Vec<String> {
    let mut cells = vec![line.0.to_owned()];
    for (at, after) in figures.iter().enumerate() {
        let whole = |value: f64| figure::whole(value.round() as u64);
        cells.push(Band::of(after).map_or("-".into(), |band| band.show(whole)));
        if at > 0 {
            cells.push(
                line.2
                    .map_or(String::new(), |more| times(&figures[0], after, more)),
            );
        }
    }
    cells
}

/// How many times better `after` is, seed by seed.
fn times(before: &[f64], after: &[f64], more: bool) -> String {
    let pairs = before.iter().zip(after);
    let times = pairs.map(|(&before, &after)| match more {
        true => after / before,
        false => before / after,
    });
    let times: Vec<f64> = times.filter(|times| times.is_finite()).collect();
    Band::of(&times).map_or("-".into(), |band| band.show(|times| format!("{times:.2}")))
}

fn document() -> String {
    let document = documents().hugetlb;
    let mut table = plain(&["", "Before", "After", "Times"], 1);
    for (name, before, after) in &document.metrics {
        let times = (after / before).max(before / after);
        let whole = |value: f64| figure::whole(value.round() as u64);
        table.add_row([
            name.clone(),
            whole(*before),
            whole(*after),
            format!("{times:.2}"),
        ]);
    }
    let title = format!(
        "Document {}: {}, {} CPUs ({})",
        document.document, document.machine, document.cpus, document.source
    );
    titled(&title, &table)
}
