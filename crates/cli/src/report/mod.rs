//! `softfault lab report`: one HTML page over the lab's results, that needs nothing beside itself.
//!
//! ```text
//!   rows ─► groups ─► headline      the most telling ratios
//!                 └─► section       a workload: threads (lines), miss (a matrix), charts (bars), waits,
//!                                   table
//!   machine, commands ─► page       around them
//! ```
//! `bars` and `lines` draw; `engines` says which colour and mark each engine has, always the same; a thing that
//! is told by its colour is also named in words. `style.css` knows light and dark, wide and narrow.

mod about;
mod bars;
mod charts;
mod commands;
mod engines;
mod headline;
mod lines;
mod machine;
mod miss;
mod page;
mod scale;
mod section;
mod table;
mod threads;
mod waits;

use crate::error::Error;
use crate::output;
use crate::results;
use crate::results::group::Key;
use crate::results::row::Row;
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `lab report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Result files of `lab run --json`; `-` is stdin. If several files have the same engine, the files' names
    /// distinguish its results
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// The HTML page to write; `-` is stdout
    #[arg(short, long, value_name = "PATH", default_value = "report.html")]
    output: PathBuf,
    /// The heading of the page
    #[arg(long, value_name = "TEXT", default_value = "Page faults, measured")]
    title: String,
}

/// The parts of the page besides the rows.
pub struct About<'a> {
    /// The heading.
    pub title: &'a str,
    /// The command that measured it all; without it, the commands that would measure the rows again.
    pub command: Option<&'a str>,
    /// A place on the disk to tell of.
    pub disk: &'a Path,
}

/// Runs the command.
pub fn run(args: &ReportArgs) -> Result<(), Error> {
    let inputs: Vec<&Path> = args.results.iter().map(PathBuf::as_path).collect();
    let is_stdout = args.output == Path::new("-");
    if !is_stdout {
        output::can_write_page(&args.output, &inputs)?;
    }
    let mut files = Vec::new();
    for path in &args.results {
        files.push((path.as_path(), results::read(path)?));
    }
    let about = About {
        title: &args.title,
        command: None,
        disk: &args.results[0],
    };
    let rows = merge(files);
    if is_stdout {
        return output::print(&page::page(&rows, &about));
    }
    // Where the page itself goes to stdout (/dev/stdout), its name does not follow it.
    let is_stdout = output::is_same(&args.output, Path::new("/dev/stdout"));
    write(&rows, &about, &args.output)?;
    match args.output.is_file() && !is_stdout {
        true => output::print(&format!("{}\n", args.output.display())),
        false => Ok(()),
    }
}

/// Writes the page over `rows` to `path`.
pub fn write(rows: &[Row], about: &About, path: &Path) -> Result<(), Error> {
    output::write(path, &page::page(rows, about))
}

/// All files' rows in one; an engine that two files have measured on the same becomes two.
fn merge(files: Vec<(&Path, Vec<Row>)>) -> Vec<Row> {
    let mut twice: Vec<String> = Vec::new();
    for (at, (_, rows)) in files.iter().enumerate() {
        let others = || files[at + 1..].iter().flat_map(|(_, rows)| rows);
        for row in rows {
            let alike = |other: &Row| other.on == row.on && Key::of(other) == Key::of(row);
            if !twice.contains(&row.on) && others().any(alike) {
                twice.push(row.on.clone());
            }
        }
    }
    let mut merged = Vec::new();
    let paths: Vec<&Path> = files.iter().map(|(path, _)| *path).collect();
    for (at, (_, rows)) in files.into_iter().enumerate() {
        let name = results::file_name(at, &paths);
        for mut row in rows {
            if twice.contains(&row.on) {
                row.on = format!("{} ({name})", row.on);
            }
            merged.push(row);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_of_two_files_with_one_name_is_two() {
        let row = || Row {
            workload: "random".into(),
            on: "softfault".into(),
            ..Row::default()
        };
        let [a, b] = ["a/results.json", "b/results.json"].map(Path::new);
        let merged = merge(vec![(a, vec![row()]), (b, vec![row()])]);
        let on: Vec<&str> = merged.iter().map(|row| &row.on[..]).collect();
        let apart = ["softfault (a/results.json)", "softfault (b/results.json)"];
        assert_eq!(on, apart);
    }
}
