//! The third table, of the workloads that swap: how much was found in memory, beside an exact LRU, how fast
//! that was beside the others, and what it cost.

use super::figure::{median, ratio};
use super::{Group, align_right, empty, group, pattern, same_line_but_engine};
use crate::lab::on::On;
use crate::lab::row::Row;
use crate::size;
use comfy_table::{Cell, Table};

/// The table over `rows`, if any of them swaps.
pub fn swap(rows: &[Row]) -> Option<Table> {
    let all = group(rows);
    let swaps = |group: &&Group| group.iter().any(|row| row.swaps);
    let groups: Vec<&Group> = all.iter().filter(swaps).collect();
    let first = groups.first()?[0];
    let mut table = empty([
        "swap",
        "pattern",
        "on",
        "in memory",
        "LRU",
        "of direct",
        "of kernel",
        "read",
        "written",
        "over budget",
        "child",
    ]);
    let differ = groups.iter().any(|group| group[0].threads != first.threads);
    for group in &groups {
        table.add_row(line(group, &groups, differ));
    }
    align_right(&mut table, 3..11);
    Some(table)
}

fn line(rows: &Group, all: &[&Group], threads_differ: bool) -> Vec<Cell> {
    let row = rows[0];
    let of = |figure: fn(&Row) -> Option<f64>| median(rows, |row| figure(row));
    let percent =
        |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{:.1} %", 100.0 * rate));
    let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| size::show(bytes as u64));
    let speed = |rows: &Group| {
        median(rows, |row| {
            Some(row.speed().0).filter(|_| row.skipped.is_none())
        })
    };
    let against = |on: On| {
        let like = |other: &&&Group| same_line_but_engine(other[0], row) && other[0].on == on;
        let other = all.iter().find(like).and_then(|other| speed(other));
        match (speed(rows), other) {
            (Some(speed), Some(other)) => ratio(speed, other),
            _ => "-".into(),
        }
    };
    let cells = [
        row.workload.to_owned(),
        pattern(row, threads_differ),
        row.on.to_string(),
        percent(of(|row| row.hit_rate)),
        percent(of(|row| row.lru_hit_rate)),
        against(On::Direct),
        against(On::Kernel(None)),
        bytes(of(|row| row.bytes_read.map(|bytes| bytes as f64))),
        bytes(of(|row| row.bytes_written.map(|bytes| bytes as f64))),
        bytes(of(|row| row.over_budget_bytes.map(|bytes| bytes as f64))),
        bytes(of(|row| row.child_peak_rss_bytes.map(|bytes| bytes as f64))),
    ];
    cells.into_iter().map(Cell::new).collect()
}
