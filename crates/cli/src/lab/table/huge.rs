//! The table of huge memory: document 001's lines.

use super::figure::{figure, median};
use super::{Group, align_right, empty, group, pattern};
use crate::lab::huge_counts::HugeRow;
use crate::lab::row::Row;
use comfy_table::{Cell, Table};

/// The table over `rows`, if any of them is of huge memory.
pub fn huge(rows: &[Row]) -> Option<Table> {
    let all = group(rows);
    let is_huge = |group: &&Group| group.iter().any(|row| row.huge.is_some());
    let groups: Vec<&Group> = all.iter().filter(is_huge).collect();
    let first = groups.first()?[0];
    let mut table = empty([
        "huge pages",
        "pattern",
        "on",
        "waits",
        "total wait",
        "longest",
        "served here",
        "minor faults",
    ]);
    let differ = groups.iter().any(|group| group[0].threads != first.threads);
    for group in &groups {
        table.add_row(line(group, differ));
    }
    align_right(&mut table, 3..8);
    Some(table)
}

fn line(rows: &Group, threads_differ: bool) -> Vec<Cell> {
    let row = rows[0];
    let of = |figure: fn(&HugeRow) -> f64| median(rows, |row| row.huge.as_ref().map(figure));
    let number = |value: Option<f64>| value.map_or("-".into(), whole);
    let ms = |value: Option<f64>| value.map_or("-".into(), |us| format!("{} ms", figure(us / 1e3)));
    let cells = [
        row.huge
            .as_ref()
            .map_or("-", |huge| huge.made_of)
            .to_owned(),
        pattern(row, threads_differ),
        row.on.to_string(),
        number(of(|huge| huge.waits as f64)),
        ms(of(|huge| huge.wait_total_us)),
        ms(of(|huge| huge.wait_max_us)),
        number(of(|huge| huge.served as f64)),
        number(of(|huge| huge.minor_faults as f64)),
    ];
    cells.into_iter().map(Cell::new).collect()
}

/// A count.
fn whole(value: f64) -> String {
    match value < 100.0 {
        true => format!("{value:.0}"),
        false => figure(value),
    }
}
