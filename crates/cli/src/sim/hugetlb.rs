//! Document 001's lines: faults on huge pages and their waits, as bands, the document's own beneath.

use super::band::Band;
use super::documents::documents;
use super::rates::{distinct, title, whole};
use super::row::simulated;
use crate::results::row::{Huge, Row, SimulatedHuge};
use crate::table::figure::{or_none, rounded};
use crate::table::{Table, heading};

/// The name of a line, its figure, and whether the second policy is to have more of it (`Some(true)`), less,
/// or neither.
type Line = (&'static str, fn(&Row, &SimulatedHuge) -> f64, Option<bool>);

/// Those that the document has come first, and are called as there.
const LINES: [Line; 13] = [
    (
        "faults/sec",
        |row, _| row.faults_per_s.unwrap_or(0.0),
        Some(true),
    ),
    ("num faults", |row, _| row.faults.unwrap_or(0) as f64, None),
    ("num waits", |_, huge| huge.waits as f64, Some(false)),
    ("wait time (ms)", |_, huge| huge.wait_total_ms, Some(false)),
    (
        "max flt wait time (us)",
        |_, huge| huge.longest_wait_us,
        Some(false),
    ),
    (
        "faults with the fault mutex",
        |_, huge| huge.mutex_locked as f64,
        None,
    ),
    (
        "waits for it",
        |_, huge| huge.mutex_waits as f64,
        Some(false),
    ),
    (
        "wait time for it (ms)",
        |_, huge| huge.mutex_wait_total_ms,
        Some(false),
    ),
    (
        "rounds/sec",
        |row, _| row.rounds.unwrap_or(0) as f64 / row.elapsed_s,
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
    let policies = distinct(rows, |row| simulated(row).policy.clone());
    let mut header = vec![String::new()];
    for (at, policy) in policies.iter().enumerate() {
        header.push(heading(policy));
        header.extend((at > 0).then(|| "Times".to_owned()));
    }
    let mut text = String::new();
    for cores in distinct(rows, |row| simulated(row).cores) {
        let mut table = Table::plain(&header, 1);
        for line in LINES {
            let of = |policy: &String| figures(rows, cores, policy, line.1);
            let figures: Vec<Vec<f64>> = policies.iter().map(of).collect();
            table.row(cells(&line, &figures));
        }
        let threads = rows.iter().find(|row| simulated(row).cores == cores);
        let threads = threads.map_or(0, |row| row.threads);
        let title = format!("{}; {cores} cores, {threads} spaces", title(rows));
        text += &table.titled(&title);
    }
    text + &document()
}

/// A figure of each seed for which no policy failed.
fn figures(
    rows: &[Row],
    cores: usize,
    policy: &str,
    of: fn(&Row, &SimulatedHuge) -> f64,
) -> Vec<f64> {
    let figure = |row: &Row| match &row.huge {
        Some(Huge::Simulated(huge)) => Some(of(row, huge)),
        _ => None,
    };
    whole(rows, cores, policy).filter_map(figure).collect()
}

fn cells(line: &Line, figures: &[Vec<f64>]) -> Vec<String> {
    let mut cells = vec![line.0.to_owned()];
    for (at, after) in figures.iter().enumerate() {
        cells.push(or_none(Band::of(after), |band| band.show(rounded)));
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
    or_none(Band::of(&times), |band| {
        band.show(|times| format!("{times:.2}"))
    })
}

fn document() -> String {
    let document = documents().hugetlb;
    let mut table = Table::plain(&["", "Before", "After", "Times"], 1);
    for (name, before, after) in &document.metrics {
        let times = (after / before).max(before / after);
        table.row([
            name.clone(),
            rounded(*before),
            rounded(*after),
            format!("{times:.2}"),
        ]);
    }
    let title = format!(
        "Document {}: {}, {} CPUs ({})",
        document.document, document.machine, document.cpus, document.source
    );
    table.titled(&title)
}
