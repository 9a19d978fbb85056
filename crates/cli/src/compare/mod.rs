//! `softfault lab compare`: the lab's results side by side, as text in the shapes that the mailing lists
//! use: two files, or two engines or policies of one file, or all of them.
//!
//! `cases` matches the rows; `rates` (document 004), `matrix` (003), `rounds` (000), `waits` (002) and `swap` print
//! the tables, with their shared parts in `cells`.

pub mod cases;
pub mod cells;
mod matrix;
mod rates;
pub mod rounds;
mod swap;
pub mod waits;

use crate::error::Error;
use crate::output;
use crate::results::row::Row;
use crate::results::{self, file_names, names};
use cases::Cases;
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `lab compare`.
#[derive(Args, Debug)]
#[command(
    after_long_help = "With one file and no names, all its engines and policies are compared with the \
        first; --before NAME makes NAME the first, and --before NAME --after NAME compares only these two. With \
        two files, each engine is compared with itself, or --before of the first file with --after of the \
        second.\n\n\
        Two rows are compared if workload, pattern, threads, length of the files and memory are the same; \
        rows that only one side has are named. Figures are medians over the runs, except Hmean (the harmonic \
        mean of the runs' rates), Avg (the mean), and the table of \
        rounds, which has a line for each run.\n\n\
        *  12.34%* marks a change of a rate that is beyond the noise between runs: Welch's t-test on the \
        times per fault, page or round, two-sided, p < 0.05. (  12.34%) is a change that may be noise. \
        ?  12.34%? cannot be decided: a side has a single run (lab run --repeat), or a run that \
        was given up or did nothing. One mark in twenty is chance.\n\n\
        A figure with + includes a run that was given up, with the work done until then; for one with ! \
        a run failed and is left out."
)]
pub struct CompareArgs {
    /// Result file of `lab run --json`, from before the change; `-` is stdin
    #[arg(value_name = "BEFORE.json")]
    before_file: PathBuf,
    /// Result file from after the change; without it, the engines and policies of the first file are compared
    #[arg(value_name = "AFTER.json")]
    after_file: Option<PathBuf>,
    /// The baseline: an engine, with its policies
    #[arg(long, value_name = "ON")]
    before: Option<String>,
    /// The engine, with its policies, to compare with the baseline
    #[arg(long, value_name = "ON", requires = "before")]
    after: Option<String>,
    /// Compare only these
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "after"
    )]
    on: Vec<String>,
    /// Leave out the tables of waits
    #[arg(long)]
    no_waits: bool,
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> Result<(), Error> {
    let before = results::read(&args.before_file)?;
    let text = match &args.after_file {
        None => text(&one_file(args, &before)?, args.no_waits),
        Some(path) => text(
            &two_files(args, &before, &results::read(path)?, path)?,
            args.no_waits,
        ),
    };
    output::print(&text)
}

/// The engines and policies of one file.
fn one_file<'a>(args: &CompareArgs, rows: &'a [Row]) -> Result<Cases<'a>, Error> {
    let path = &args.before_file;
    let there = engines(rows);
    let mut cases: Vec<&str> = Vec::new();
    let only: Vec<&str> = match &args.after {
        Some(after) => vec![after],
        None if args.on.is_empty() => there.clone(),
        None => args.on.iter().map(String::as_str).collect(),
    };
    for engine in args.before.as_deref().into_iter().chain(only) {
        must_have(engine, rows, path)?;
        if !cases.iter().any(|case| names::same(case, engine)) {
            cases.push(engine);
        }
    }
    match cases[..] {
        [] | [_] => Err(Error::input(format_args!(
            "nothing to compare with {}: {} has {}",
            cases.join(""),
            path.display(),
            there.join(", ")
        ))),
        [before, after] => {
            let names = [before.to_owned(), after.to_owned()];
            some(Cases::two(rows, rows, Some([before, after]), &[], names))
        }
        _ => Ok(Cases::all(rows, &cases)),
    }
}

/// The engines of two files, each with itself or the one with the other.
fn two_files<'a>(
    args: &CompareArgs,
    before: &'a [Row],
    after: &'a [Row],
    after_path: &Path,
) -> Result<Cases<'a>, Error> {
    let paths = [args.before_file.as_path(), after_path];
    let names = file_names(paths);
    let engines = match (&args.before, &args.after) {
        (Some(before), Some(after)) => Some([&before[..], &after[..]]),
        (None, _) => None,
        (Some(_), None) => {
            let why = "with two files, --before and --after go together";
            return Err(Error::input(why));
        }
    };
    let only: Vec<&str> = args.on.iter().map(String::as_str).collect();
    for (side, (rows, path)) in [before, after].into_iter().zip(paths).enumerate() {
        let named = engines.iter().map(|engines| engines[side]);
        for engine in named.chain(only.iter().copied()) {
            must_have(engine, rows, path)?;
        }
    }
    let names = match engines {
        None => names,
        Some([before, after]) => [
            format!("{before} ({})", names[0]),
            format!("{after} ({})", names[1]),
        ],
    };
    some(Cases::two(before, after, engines, &only, names))
}

/// The cases, if they share anything.
fn some(cases: Cases) -> Result<Cases, Error> {
    match cases.lines.is_empty() {
        false => Ok(cases),
        true => Err(Error::input(format_args!(
            "nothing to compare, the sides share no row: {}",
            cases.first_of_each().join("; ")
        ))),
    }
}

/// All tables, and the rows that are not in them.
fn text(cases: &Cases, no_waits: bool) -> String {
    let mut text = match &cases.names[..] {
        [before, after] => format!("before: {before}\nafter:  {after}\n"),
        [first, ..] => format!("each against {first}\n"),
        [] => unreachable!("there are two or more"),
    };
    text += &rates::table(cases);
    text += &matrix::tables(cases);
    text += &rounds::tables(cases);
    text += &swap::tables(cases);
    if !no_waits {
        text += &waits::tables(cases);
    }
    let marks: String = (cases.lines.iter())
        .flat_map(|line| line.groups.iter().flatten())
        .map(|group| group.mark())
        .collect();
    let meanings = [
        ('+', "given up: the work done before the run was killed"),
        ('!', "some runs failed, and are left out"),
    ];
    let mut first = "\n";
    for (mark, meaning) in meanings.iter().filter(|(mark, _)| marks.contains(*mark)) {
        text += &format!("{first}{mark}     {meaning}\n");
        first = "";
    }
    if !cases.lonely.is_empty() {
        text += "\nNot compared:\n";
        for line in &cases.lonely {
            text += &format!("  {line}\n");
        }
    }
    text
}

/// The engines of the rows, in order of appearance.
fn engines(rows: &[Row]) -> Vec<&str> {
    let mut engines: Vec<&str> = Vec::new();
    for row in rows {
        if !engines.iter().any(|engine| names::same(engine, &row.on)) {
            engines.push(&row.on);
        }
    }
    engines
}

fn must_have(engine: &str, rows: &[Row], path: &Path) -> Result<(), Error> {
    if rows.iter().any(|row| names::same(&row.on, engine)) {
        return Ok(());
    }
    Err(Error::input(format_args!(
        "{} has no rows on {engine}: it has {}",
        path.display(),
        engines(rows).join(", ")
    )))
}
