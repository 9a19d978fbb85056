//! Cells that several tables have: headings that fit their columns, figures with their changes.

use super::cases::{Cases, Line};
use crate::results::figure;
use crate::results::group::Group;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// A heading is broken between policies from this width on.
const WIDE: usize = 16;

/// A table without lines: text columns left, figures right.
pub fn plain<T: ToString>(header: &[T], text_columns: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().map(T::to_string));
    for at in text_columns..header.len() {
        let column = table.column_mut(at).expect("a column of the header");
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A table under its title.
pub fn titled(title: &str, table: &Table) -> String {
    format!("\n{title}\n\n{}\n", table.trim_fmt())
}

/// A case's name over a column of figures: `softfault:retry=held+pin=no` takes lines for its policies.
pub fn heading(name: &str) -> String {
    let mut lines = vec![String::new()];
    for part in name.split_inclusive([':', '+', ' ']) {
        let last = lines.last_mut().expect("it starts with one");
        match last.len() + part.trim_end().len() > WIDE && !last.is_empty() {
            true => lines.push(part.into()),
            false => *last += part,
        }
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

/// Headings of columns of figures and their changes: `two` where there is a before and an after.
pub fn headings(cases: &Cases, names: &[String], two: [&str; 2]) -> Vec<String> {
    let names: Vec<String> = match cases.is_two() {
        true => two.map(String::from).into(),
        false => names.iter().map(|name| heading(name)).collect(),
    };
    let with_change = |(at, name)| match at {
        0 => vec![name],
        _ => vec![name, "Change".into()],
    };
    names
        .into_iter()
        .enumerate()
        .flat_map(with_change)
        .collect()
}

/// A figure of each case, with its change against the first one's.
pub fn with_changes(
    line: &Line,
    figures: &[Option<f64>],
    show: impl Fn(f64) -> String,
) -> Vec<String> {
    let mut cells = Vec::new();
    for (at, figure) in figures.iter().enumerate() {
        cells.push(shown(line.groups[at].as_ref(), figure.map(&show)));
        if at > 0 {
            let change = figures[0].zip(*figure);
            cells.push(change.map_or("N/A".into(), |(before, after)| {
                // Nothing before and nothing after is nothing to tell of.
                match (before, after) {
                    (0.0, 0.0) => "N/A".into(),
                    _ => figure::change(before, after),
                }
            }));
        }
    }
    cells
}

/// A figure with the mark of the runs behind it, or why there is none.
pub fn shown(group: Option<&Group>, figure: Option<String>) -> String {
    match (group, figure) {
        (Some(group), Some(figure)) => figure + &group.mark(),
        (Some(group), None) if group.runs.is_empty() => group.without().into(),
        _ => "-".into(),
    }
}

/// A count for a table; the mean of small ones has a place more.
pub fn count(value: f64) -> String {
    match value.fract() != 0.0 && value < 99.95 {
        true => format!("{value:.1}"),
        false => figure::whole(value.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_break_between_policies_and_nowhere_else() {
        assert_eq!(heading("kernel"), "kernel");
        assert_eq!(
            heading("softfault:retry=mmap-lock+pin=no"),
            "softfault:\nretry=mmap-lock+\npin=no"
        );
        assert_eq!(
            heading("soft:lock=rwsem (later)"),
            "soft:lock=rwsem\n(later)"
        );
    }
}
