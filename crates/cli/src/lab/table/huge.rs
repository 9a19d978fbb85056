//! The table of huge memory: document 001's lines.

use super::pattern;
use crate::results::group::Group;
use crate::results::row::{Huge, MeasuredHuge, Row};
use crate::table::Table;
use crate::table::figure::{count, or_none, seconds};

/// The table, if any row is of huge memory.
pub fn table(all: &[Group]) -> Option<Table> {
    let with_first = |group| -> Option<(&Group, &MeasuredHuge)> {
        Some((group, measured(group.runs.first()?)?))
    };
    let groups: Vec<(&Group, &MeasuredHuge)> = all.iter().filter_map(with_first).collect();
    let header = [
        "huge pages",
        "pattern",
        "on",
        "waits",
        "total wait",
        "longest",
        "served here",
        "minor faults",
    ];
    let mut table = Table::ruled(&header, 3..8);
    for (group, first) in &groups {
        let of = |figure: fn(&MeasuredHuge) -> f64| group.median(|row| measured(row).map(figure));
        let time = |us: f64| seconds(us / 1e6);
        table.row([
            first.made_of.clone(),
            pattern(group.key, all),
            group.on.to_owned(),
            or_none(of(|huge| huge.waits as f64), count),
            or_none(of(|huge| huge.wait_total_us), time),
            or_none(of(|huge| huge.wait_max_us), time),
            or_none(of(|huge| huge.served as f64), count),
            or_none(of(|huge| huge.minor_faults as f64), count),
        ]);
    }
    (!groups.is_empty()).then_some(table)
}

fn measured(row: &Row) -> Option<&MeasuredHuge> {
    match &row.huge {
        Some(Huge::Measured(huge)) => Some(huge),
        _ => None,
    }
}
