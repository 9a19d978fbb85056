//! Tables for the terminal: the one place that lays them out. `figure` is how their figures are written.

pub mod figure;

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};
use std::fmt;
use std::ops::Range;

/// A heading is broken between policies from this width on.
const WIDE: usize = 16;

/// Rows under a header.
pub struct Table(comfy_table::Table);

impl Table {
    /// With a line under the header, wrapped to the terminal; the columns of `figures` are aligned right.
    pub fn ruled<T: ToString>(header: &[T], figures: Range<usize>) -> Self {
        let arrangement = ContentArrangement::Dynamic;
        let mut table = Self::styled(UTF8_HORIZONTAL_ONLY, arrangement, header, figures);
        table.0.style_mut().row_separator = LineStyle::none();
        table
    }

    /// Without lines and as wide as it is, as the mailing lists have tables: text columns left, figures right.
    pub fn plain<T: ToString>(header: &[T], text_columns: usize) -> Self {
        let figures = text_columns..header.len();
        Self::styled(NOTHING, ContentArrangement::Disabled, header, figures)
    }

    /// As markdown has them.
    pub fn markdown<T: ToString>(header: &[T]) -> Self {
        Self::styled(ASCII_MARKDOWN, ContentArrangement::Disabled, header, 0..0)
    }

    fn styled<T: ToString>(
        style: TableStyle,
        arrangement: ContentArrangement,
        header: &[T],
        figures: Range<usize>,
    ) -> Self {
        let mut table = comfy_table::Table::new();
        table
            .load_style(style)
            .set_content_arrangement(arrangement)
            .set_header(header.iter().map(T::to_string));
        for at in figures {
            let column = table.column_mut(at).expect("a column of the header");
            column.set_cell_alignment(CellAlignment::Right);
        }
        Self(table)
    }

    /// No wider than so many columns of a terminal.
    pub fn at_most(mut self, columns: u16) -> Self {
        let width = self.0.width().unwrap_or(columns).min(columns);
        self.0.set_width(width);
        self
    }

    /// One more row.
    pub fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0
            .add_row(cells.into_iter().map(|cell| cell.to_string()));
    }

    /// The table under a title; nothing if it has no row.
    pub fn titled(&self, title: &str) -> String {
        match self.0.row_count() {
            0 => String::new(),
            _ => format!("\n{title}\n\n{}\n", self.0.trim_fmt()),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
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
