//! Columns side by side.

use super::column::{Column, name};
use crate::table::Table;
use crate::table::figure::{self, NONE, whole};
use softfault_engine::stage::Stage;
use std::fmt::Write;

/// A table for each way in which faults are told of.
pub fn tables(columns: &[Column]) -> String {
    let mut text = String::new();
    let mut rest = columns;
    while let Some(first) = rest.first() {
        let end = rest.iter().take_while(|one| one.told_by == first.told_by);
        let (these, others) = rest.split_at(end.count());
        rest = others;
        text += &table(&first.told_by, these);
    }
    text
}

fn table(told_by: &str, columns: &[Column]) -> String {
    let (run, not): (Vec<&Column>, Vec<&Column>) =
        columns.iter().partition(|column| column.not_run.is_none());
    let mut header = vec![format!("by {told_by}, µs")];
    header.extend(run.iter().map(|column| column.kind.clone()));
    let mut table = Table::plain(&header, 1);
    let mut row = |title: &str, of: &dyn Fn(&Column) -> String| {
        let cells = run.iter().map(|column| of(column));
        table.row(std::iter::once(title.to_owned()).chain(cells));
    };
    for stage in Stage::ALL.map(name) {
        if run.iter().any(|column| column.mean_ns(stage).is_some()) {
            row(stage, &|column| {
                figure::or_none(column.mean_ns(stage), micros)
            });
        }
    }
    row("the whole, mean", &|column| match column.of_kind {
        0 => NONE.into(),
        count => micros(column.total_ns as f64 / count as f64),
    });
    row("median", &|column| micros(column.median_ns as f64));
    row("median, not recorded", &|column| {
        figure::or_none(column.median_unrecorded_ns, |ns| micros(ns as f64))
    });
    row("touches", &|column| whole(column.of_kind));
    row("other faults", &|column| whole(column.otherwise));
    row("no fault", &|column| whole(column.no_fault));
    let mut text = match run.is_empty() {
        true => String::new(),
        false => format!("{table}\n"),
    };
    for column in not {
        let why = column.not_run.as_deref().unwrap_or_default();
        let _ = writeln!(text, "not run: {} by {told_by}: {why}", column.kind);
    }
    text
}

fn micros(ns: f64) -> String {
    format!("{:.2}", ns / 1000.0)
}
