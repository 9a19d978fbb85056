//! Workloads in rounds, in the shape of document 000's table: a line for each run.

use super::cases::{Cases, Line};
use super::cells::titled;
use crate::results::Row;
use crate::results::figure;
use crate::results::group::Group;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{ContentArrangement, Table};

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
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(HEADER);
    for (name, group) in cases.names.iter().zip(&line.groups) {
        let Some(group) = group else { continue };
        for (at, row) in group.runs.iter().enumerate() {
            let run = row.run.unwrap_or(at as u32 + 1);
            let given_up = if row.gave_up { ", given up" } else { "" };
            let of = |figure: fn(&Row) -> Option<f64>| figure(row);
            table.add_row(cells(format!("{name} (Run {run}{given_up})"), of));
        }
        if group.runs.len() > 1 {
            let of = |figure: fn(&Row) -> Option<f64>| group.median(figure);
            table.add_row(cells(format!("{name} (Median{})", group.mark()), of));
        }
        if group.failed > 0 {
            let all = group.failed + group.runs.len();
            let case = format!("{name} ({} of {all} failed)", group.failed);
            table.add_row(cells(case, |_| None));
        }
    }
    titled(&format!("Rounds and retries: {}", line.title()), &table)
}

fn cells(case: String, of: impl Fn(fn(&Row) -> Option<f64>) -> Option<f64>) -> Vec<String> {
    let show = |figure: fn(&Row) -> Option<f64>, text: fn(f64) -> String| {
        of(figure).map_or("-".into(), text)
    };
    let count = |count: f64| figure::whole(count.round() as u64);
    vec![
        case,
        show(|row| Some(row.rounds? as f64), count),
        show(|row| row.rounds_per_s, |speed| format!("{speed:.2} /s")),
        show(Row::miss_per_drop, |percent| format!("{percent:.2}")),
        show(|row| Some(row.retry_mmap_drop? as f64), count),
        show(|row| Some(row.retry_io_miss? as f64), count),
    ]
}
