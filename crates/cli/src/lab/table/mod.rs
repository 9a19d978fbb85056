//! The closing table: a line for each workload, pattern, number of threads and engine, with medians over
//! the repeats and the speed relative to the first engine of the list. `waits` has a second one, `swap` a third, `huge` a fourth.

mod figure;
mod huge;
mod swap;
mod waits;

use huge::huge;
use swap::swap;
use waits::waits;

use super::row::Row;
use crate::size;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table};
use figure::{figure, median, ratio, seconds};
use std::ops::Range;

/// The rows of one line: same workload, pattern, number of threads and engine.
type Group<'a> = Vec<&'a Row>;

/// The table over `rows`, in the order of their first appearance.
pub fn table(rows: &[Row]) -> Table {
    let mut table = empty([
        "workload", "pattern", "on", "time", "speed", "ratio", "read", "CPU", "peak", "",
    ]);
    let groups = group(rows);
    for rows in &groups {
        let first = groups
            .iter()
            .find(|other| same_line_but_engine(other[0], rows[0]))
            .expect("a group is like itself");
        let differ = groups.iter().any(|other| {
            other[0].workload == rows[0].workload && other[0].threads != rows[0].threads
        });
        table.add_row(line(rows, first, differ));
    }
    align_right(&mut table, 3..9);
    table
}

/// All tables that there are something to say in, under one another.
pub fn tables(rows: &[Row]) -> String {
    let more = [waits(rows), swap(rows), huge(rows)].into_iter().flatten();
    let all = std::iter::once(table(rows)).chain(more);
    all.map(|table| format!("{table}\n")).collect()
}

fn empty<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.into_iter().collect::<Vec<_>>());
    table.style_mut().row_separator = LineStyle::none();
    table
}

fn align_right(table: &mut Table, columns: Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// How far the kernel's rows read ahead, which decides most of what they show; `None` where there are none.
pub fn read_ahead(rows: &[Row]) -> Option<String> {
    let all = rows.iter().filter(|row| row.kernel_read_ahead);
    let mut all: Vec<u32> = all.filter_map(|row| row.read_ahead_kb).collect();
    all.sort_unstable();
    all.dedup();
    match &all[..] {
        [] => None,
        [kb] => Some(format!("the kernel reads {kb} KiB ahead on this device")),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(u32::to_string).collect();
            Some(format!(
                "the kernel reads {} and {last} KiB ahead on this device, as its rows say",
                most.join(", ")
            ))
        }
    }
}

/// The notes of all rows, each once.
pub fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for row in rows {
        for note in &row.notes {
            let note = format!("{}: {note}", row.on);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

fn group(rows: &[Row]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let like =
            |group: &&mut Group| same_line_but_engine(group[0], row) && group[0].on == row.on;
        match groups.iter_mut().find(like) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn same_line_but_engine(a: &Row, b: &Row) -> bool {
    (a.workload, &a.pattern, a.threads) == (b.workload, &b.pattern, b.threads)
}

/// Pattern and, where the workload's rows differ in it, number of threads.
fn pattern(row: &Row, threads_differ: bool) -> String {
    match threads_differ {
        true => format!("{} ×{}", row.pattern, row.threads),
        false => row.pattern.clone(),
    }
}

fn line(rows: &Group, first: &Group, threads_differ: bool) -> Vec<Cell> {
    let row = rows[0];
    let unit = row.speed().1;
    let speed = median(rows, |row| Some(row.speed().0)).unwrap_or(0.0);
    let baseline = median(first, |row| Some(row.speed().0)).unwrap_or(0.0);
    let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| size::show(bytes as u64));
    let cpu_us = median(rows, |row| {
        Some(row.cpu_s? * 1e6 / row.accesses.max(1) as f64)
    });
    vec![
        Cell::new(row.workload),
        Cell::new(pattern(row, threads_differ)),
        Cell::new(row.on),
        Cell::new(seconds(median(rows, |row| Some(row.elapsed_s)))),
        Cell::new(format!("{} {unit}", figure(speed))),
        Cell::new(ratio(speed, baseline)),
        Cell::new(bytes(median(rows, |row| row.bytes_read.map(|n| n as f64)))),
        Cell::new(cpu_us.map_or("-".into(), |us| format!("{us:.1} µs/page"))),
        Cell::new(bytes(median(rows, |row| row.peak_bytes.map(|n| n as f64)))),
        Cell::new(remarks(rows)),
    ]
}

fn remarks(rows: &Group) -> String {
    let mut remarks = Vec::new();
    let gave_up = rows.iter().filter(|row| row.gave_up).count();
    match (gave_up, rows.len()) {
        (0, _) => {}
        (1, 1) => remarks.push("given up".into()),
        (some, all) => remarks.push(format!("given up {some} of {all}")),
    }
    let row = rows[0];
    if rows.iter().any(|row| row.error.is_some()) {
        remarks.push("failed".into());
    }
    if rows.iter().any(|row| row.skipped.is_some()) {
        return "not run".into();
    }
    if !row.on.has_no_memory() && !row.limited {
        remarks.push("not limited".into());
    }
    if !row.checked {
        remarks.push("not checked".into());
    }
    remarks.join(", ")
}
