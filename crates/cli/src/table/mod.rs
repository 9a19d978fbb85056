//! Tables for the terminal: the one place that lays them out. `figure` is how their figures are written.

pub mod figure;

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle};
use std::fmt;
use std::ops::Range;

/// A heading is broken between policies from this width on.
const WIDE: usize = 16;
/// A terminal that reports fewer columns does not know how many it has: serial lines and some containers report 0.
const NARROWEST: u16 = 40;
/// Columns that a last column of text wants at the least.
const LEAST_TEXT: u16 = 24;

/// Rows under a header.
pub struct Table {
    table: comfy_table::Table,
    width: Width,
}

/// How wide a table may be.
#[derive(Clone, Copy)]
enum Width {
    /// As wide as it is.
    Own,
    /// As wide as the terminal, if no word is broken: else as wide as it is, and the terminal breaks its lines.
    Terminal,
    /// As wide as the terminal, and no wider than so many columns. The last column has text; a word of it is broken that is longer
    /// than a line, a path, say.
    AtMost(u16),
}

impl Table {
    /// With a line under the header, wrapped to the terminal; the columns of `figures` are aligned right.
    pub fn ruled<T: ToString>(header: &[T], figures: Range<usize>) -> Self {
        let mut table = Self::styled(UTF8_HORIZONTAL_ONLY, Width::Terminal, header, figures);
        table.table.style_mut().row_separator = LineStyle::none();
        table
    }

    /// Without lines and as wide as it is, as the mailing lists have tables: text columns left, figures right.
    pub fn plain<T: ToString>(header: &[T], text_columns: usize) -> Self {
        let figures = text_columns..header.len();
        Self::styled(NOTHING, Width::Own, header, figures)
    }

    /// As markdown has them.
    pub fn markdown<T: ToString>(header: &[T]) -> Self {
        Self::styled(ASCII_MARKDOWN, Width::Own, header, 0..0)
    }

    fn styled<T: ToString>(
        style: TableStyle,
        width: Width,
        header: &[T],
        figures: Range<usize>,
    ) -> Self {
        let mut table = comfy_table::Table::new();
        table
            .load_style(style)
            .set_header(header.iter().map(T::to_string));
        for at in figures {
            let column = table.column_mut(at).expect("a column of the header");
            column.set_cell_alignment(CellAlignment::Right);
        }
        Self { table, width }
    }

    /// No wider than so many columns of a terminal. The last column has text.
    pub fn at_most(mut self, columns: u16) -> Self {
        self.width = Width::AtMost(columns);
        self
    }

    /// One more row.
    pub fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.table
            .add_row(cells.into_iter().map(|cell| cell.to_string()));
    }

    /// The table under a title; nothing if it has no row.
    pub fn titled(&self, title: &str) -> String {
        match self.table.row_count() {
            0 => String::new(),
            _ => format!("\n{title}\n\n{}\n", self.arranged().trim_fmt()),
        }
    }

    /// The table, as wide as it may be.
    fn arranged(&self) -> comfy_table::Table {
        let mut table = self.table.clone();
        table.set_content_arrangement(ContentArrangement::Disabled);
        let terminal = table.width().filter(|&columns| columns >= NARROWEST);
        let (width, has_text) = match self.width {
            Width::Own => (None, false),
            Width::Terminal => (terminal, false),
            Width::AtMost(most) => (Some(terminal.unwrap_or(most).min(most)), true),
        };
        let Some(width) = width else {
            return table;
        };
        let mut least = longest_words(&table);
        if has_text && let Some(text) = least.last_mut() {
            *text = LEAST_TEXT.min(*text);
        }
        // With the padding of each, and a line between each two.
        let least: Vec<u16> = (least.into_iter().zip(table.column_iter()))
            .map(|(word, column)| word.saturating_add(column.padding_width()))
            .collect();
        let lines = least.len() as u16 + 1;
        let all = least
            .iter()
            .fold(lines, |all, &one| all.saturating_add(one));
        if all <= width {
            table.set_width(width);
            table.set_content_arrangement(ContentArrangement::Dynamic);
            for (column, least) in table.column_iter_mut().zip(least) {
                let least = comfy_table::Width::Fixed(least);
                column.set_constraint(ColumnConstraint::LowerBoundary(least));
            }
        }
        table
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.arranged().fmt(f)
    }
}

/// The characters of the longest word of each column.
fn longest_words(table: &comfy_table::Table) -> Vec<u16> {
    let mut longest = vec![0; table.column_iter().count()];
    for row in table.header().into_iter().chain(table.row_iter()) {
        for (longest, cell) in longest.iter_mut().zip(row.cell_iter()) {
            let content = cell.content();
            let words = content.split_whitespace();
            let words = words.map(|word| u16::try_from(word.chars().count()).unwrap_or(u16::MAX));
            *longest = words.fold(*longest, u16::max);
        }
    }
    longest
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
