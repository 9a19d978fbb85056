//! The closing table: a line for each workload, pattern and engine, with medians over the repeats and
//! the speed relative to the first engine of the list.

use super::engine::On;
use super::row::Row;
use crate::size;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table};

/// The rows of one line: same workload, pattern and engine.
type Group<'a> = Vec<&'a Row>;

/// The table over `rows`, in the order of their first appearance.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "workload", "pattern", "on", "time", "speed", "ratio", "read", "CPU", "peak", "",
        ]);
    table.style_mut().row_separator = LineStyle::none();
    let groups = group(rows);
    for rows in &groups {
        let first = groups
            .iter()
            .find(|other| same_line_but_engine(other[0], rows[0]))
            .expect("a group is like itself");
        table.add_row(line(rows, first));
    }
    for column in [3, 4, 5, 6, 7, 8] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The notes of all rows, each once.
pub fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for row in rows {
        for note in &row.notes {
            let note = format!("{}: {note}", row.on.name());
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
    (a.workload, &a.pattern) == (b.workload, &b.pattern)
}

fn line(rows: &Group, first: &Group) -> Vec<Cell> {
    let row = rows[0];
    let speed = median(rows, |row| Some(row.speed())).unwrap_or(0.0);
    let baseline = median(first, |row| Some(row.speed())).unwrap_or(0.0);
    let unit = match row.rounds {
        Some(_) => "rounds/s",
        None => "pages/s",
    };
    let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| size::show(bytes as u64));
    let cpu_us = median(rows, |row| {
        Some(row.cpu_s? * 1e6 / row.accesses.max(1) as f64)
    });
    vec![
        Cell::new(row.workload),
        Cell::new(&row.pattern),
        Cell::new(row.on.name()),
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
    if row.on != On::Pread && !row.limited {
        remarks.push("not limited".into());
    }
    if !row.checked {
        remarks.push("not checked".into());
    }
    remarks.join(", ")
}

/// The middle of the rows' figures, of two middles the mean; `None` if no row has one.
fn median<T>(rows: &[T], figure: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let mut figures: Vec<f64> = rows.iter().filter_map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let (low, high) = (figures.len().checked_sub(1)? / 2, figures.len() / 2);
    Some((figures[low] + figures[high]) / 2.0)
}

fn seconds(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 0.1 => format!("{:.1} ms", value * 1e3),
        Some(value) if value < 10.0 => format!("{value:.2} s"),
        Some(value) => format!("{value:.1} s"),
    }
}

fn ratio(speed: f64, baseline: f64) -> String {
    match baseline > 0.0 {
        true => format!("{} ×", figure(speed / baseline)),
        false => "-".into(),
    }
}

/// Three figures, thousands set apart.
fn figure(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.2}");
    }
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_readers() {
        assert_eq!(figure(1.0), "1.00");
        assert_eq!(figure(45.67), "45.7");
        assert_eq!(figure(123.0), "123");
        assert_eq!(figure(1_234_567.8), "1,234,568");
        assert_eq!(ratio(5.0, 0.0), "-");
    }

    #[test]
    fn medians_of_odd_and_even() {
        let of = |values: &[f64]| median(values, |&value| Some(value));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(of(&[]), None);
    }
}
