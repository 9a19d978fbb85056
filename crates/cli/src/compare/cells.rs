//! Cells that several tables have: headings that fit their columns, figures with their changes.

use super::cases::{Cases, Line};
use crate::results::group::Group;
use crate::table::figure::{self, NONE};
use crate::table::heading;

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
        _ => NONE.into(),
    }
}
