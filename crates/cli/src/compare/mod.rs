//! `softfault lab compare`: two sides of the lab's results against each other, as text in the shapes that
//! the mailing lists use.
//!
//! `pairs` matches the rows, `rates`, `matrix`, `thrash` and `waits` print a table each.

mod matrix;
mod pairs;
mod rates;
mod thrash;
mod waits;

use crate::error::Error;
use crate::lab::command;
use crate::results::{self, Row};
use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use pairs::Sides;
use std::path::{Path, PathBuf};

/// Arguments of `lab compare`.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Rows belong together if workload, pattern, engine, threads, length of the files and memory are \
        the same; rows that only one side has are named. Figures are medians over the runs, except where \
        it says Hmean (the harmonic mean of the runs' rates) or Avg (the mean; the longest wait is that of \
        all runs).\n\n\
        *  12.34%* marks a change of a rate that is beyond the noise between runs: Welch's t-test on the \
        times per page or round, two-sided, p < 0.05. It takes two runs or more on each side (lab run \
        --repeat); (  12.34%) is a change that is not shown to be more than noise. One mark in twenty is \
        chance."
)]
pub struct CompareArgs {
    /// What `lab run --json` wrote, before; `-` is stdin
    #[arg(value_name = "BEFORE.json")]
    before: PathBuf,
    /// The same, after; without it, --on says which engines of the one file to compare
    #[arg(value_name = "AFTER.json")]
    after: Option<PathBuf>,
    /// One engine: compare only its rows; two: the first one's rows before, the second one's after
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    on: Vec<String>,
    /// Leave out the tables of waits for locks
    #[arg(long)]
    no_waits: bool,
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> Result<(), Error> {
    let on: Vec<&str> = args.on.iter().map(String::as_str).collect();
    if on.len() > 2 || (args.after.is_none() && on.len() != 2) {
        return Err(Error::input(
            "two sides are compared: two files, or one file and --on BEFORE,AFTER",
        ));
    }
    let before = results::read(&args.before)?;
    let read = args.after.as_deref().map(results::read).transpose()?;
    let after = read.as_ref().unwrap_or(&before);
    let after_path = args.after.as_deref().unwrap_or(&args.before);
    for (engine, rows, path) in [
        (on.first(), &before, args.before.as_path()),
        (on.last(), after, after_path),
    ] {
        if let Some(engine) = engine {
            must_have(engine, rows, path)?;
        }
    }
    let names = match (&args.after, &on[..]) {
        (None, &[before, after]) => [before.into(), after.into()],
        (_, &[before, after]) => {
            let [a, b] = file_names(&args.before, after_path);
            [format!("{before} ({a})"), format!("{after} ({b})")]
        }
        _ => file_names(&args.before, after_path),
    };
    let sides = Sides::new(&before, after, &on, names);
    if sides.pairs.is_empty() {
        return Err(Error::input(format_args!(
            "nothing to compare, the sides share no row: {}",
            sides.first_of_each().join("; ")
        )));
    }
    command::print(&text(&sides, args.no_waits))
}

/// All tables, and what is not in them.
fn text(sides: &Sides, no_waits: bool) -> String {
    let [before, after] = &sides.names;
    let mut text = format!("before: {before}\nafter:  {after}\n");
    text += &rates::table(sides);
    text += &matrix::table(sides);
    text += &thrash::table(sides);
    if !no_waits {
        text += &waits::tables(sides);
    }
    let lonely = sides.lonely();
    if !lonely.is_empty() {
        text += "\nNot compared:\n";
        for line in lonely {
            text += &format!("  {line}\n");
        }
    }
    text
}

fn must_have(engine: &str, rows: &[Row], path: &Path) -> Result<(), Error> {
    if rows.iter().any(|row| row.on == engine) {
        return Ok(());
    }
    let mut there: Vec<&str> = rows.iter().map(|row| row.on.as_str()).collect();
    there.sort_unstable();
    there.dedup();
    Err(Error::input(format_args!(
        "{} has no rows on {engine}: it has {}",
        path.display(),
        there.join(", ")
    )))
}

/// The files' names without `.json`, with their folders if they are alike otherwise.
fn file_names(before: &Path, after: &Path) -> [String; 2] {
    let short = |path: &Path| path.file_stem().map(|stem| stem.display().to_string());
    match (short(before), short(after)) {
        (Some(before), Some(after)) if before != after => [before, after],
        _ => [before, after].map(|path| path.display().to_string()),
    }
}

/// A table without lines: text columns left, figures right.
fn plain(header: &[&str], text_columns: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for at in text_columns..header.len() {
        let column = table.column_mut(at).expect("a column of the header");
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A table under its title.
fn titled(title: &str, table: &Table) -> String {
    format!("\n{title}\n\n{}\n", table.trim_fmt())
}
