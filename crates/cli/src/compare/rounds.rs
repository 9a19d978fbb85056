//! Workloads in rounds, in the shape of document 000's table: a line for each run.

use super::cases::{Cases, Line};
use crate::results::group::Group;
use crate::results::row::Row;
use crate::table::Table;
use crate::table::figure::{or_none, rounded};

const HEADER: [&str; 6] = [
    "Case",
    "Total Rounds",
    "Throughput",
    "Miss/Drop(%)",
    "RETRY_MMAP_DROP",
    "RETRY_IO_MISS",
];

/// A table for each work that has rounds; nothing if none has.
pub fn tables(cases: &Cases) -> String {
    let in_rounds = |group: &Group| group.runs.iter().any(|row| row.rounds.is_some());
    let lines = cases.lines.iter();
    let lines = lines.filter(|line| line.groups.iter().flatten().any(in_rounds));
    lines.map(|line| table(cases, line)).collect()
}

fn table(cases: &Cases, line: &Line) -> String {
    let mut table = Table::markdown(&HEADER);
    for (name, group) in cases.names.iter().zip(&line.groups) {
        let Some(group) = group else { continue };
        for (at, row) in group.runs.iter().enumerate() {
            let run = row.run.unwrap_or(at as u32 + 1);
            let given_up = if row.gave_up { ", given up" } else { "" };
            let of = |figure: fn(&Row) -> Option<f64>| figure(row);
            table.row(cells(format!("{name} (Run {run}{given_up})"), of));
        }
        if group.runs.len() > 1 {
            let of = |figure: fn(&Row) -> Option<f64>| group.median(figure);
            table.row(cells(format!("{name} (Median{})", group.mark()), of));
        }
        if group.failed > 0 {
            let all = group.failed + group.runs.len();
            let case = format!("{name} ({} of {all} failed)", group.failed);
            table.row(cells(case, |_| None));
        }
    }
    table.titled(&format!("Rounds and retries: {}", line.title()))
}

fn cells(case: String, of: impl Fn(fn(&Row) -> Option<f64>) -> Option<f64>) -> Vec<String> {
    let show = |figure: fn(&Row) -> Option<f64>, text: fn(f64) -> String| or_none(of(figure), text);
    vec![
        case,
        show(|row| Some(row.rounds? as f64), rounded),
        show(|row| row.rounds_per_s, |speed| format!("{speed:.2} /s")),
        show(Row::miss_per_drop, |percent| format!("{percent:.2}")),
        show(|row| Some(row.retry_mmap_drop? as f64), rounded),
        show(|row| Some(row.retry_io_miss? as f64), rounded),
    ]
}
