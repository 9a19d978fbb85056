//! `softfault lab run`: runs a plan, prints the table, writes the JSON. `softfault lab make`: a file to
//! run over.

use super::files;
use super::plan::{self, MakeArgs, Plan, RunArgs};
use super::{Lab, table};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::results::json;
use crate::results::row::Row;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where the JSON goes.
pub enum Sink {
    /// To stdout.
    Stdout,
    /// To a file.
    File(PathBuf),
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    let plan = Plan::new(args)?;
    let sink = args.json.as_deref().map(sink).transpose()?;
    let interrupt = Interrupt::catch()?;
    let rows = Lab::new(&interrupt).run(&plan)?;
    let mut text = table::tables(&rows);
    text += &table::read_ahead(&rows);
    for note in table::notes(&rows) {
        text += &format!("note: {note}\n");
    }
    match sink {
        Some(Sink::Stdout) => {
            eprint!("{text}");
            print(&json(&rows))?;
        }
        Some(Sink::File(path)) => {
            print(&text)?;
            write(&path, &json(&rows))?;
        }
        None => print(&text)?,
    }
    first_failure(&rows)
}

/// Makes a file for `lab run --file`.
pub fn make(args: &MakeArgs) -> Result<(), Error> {
    let bytes = plan::whole_pages(args.file_size)?;
    files::make_named(&args.path, bytes, args.seed, &Interrupt::catch()?)
}

/// The error of the first row that has one.
pub fn first_failure(rows: &[Row]) -> Result<(), Error> {
    let failed = rows.iter().find_map(|row| Some((row, row.error.as_ref()?)));
    match failed {
        None => Ok(()),
        Some((row, error)) => Err(Error::failed(format_args!(
            "{} {} on {}: {error}",
            row.workload, row.pattern, row.on
        ))),
    }
}

/// Writes `text` to stdout; a reader that went away has seen what it wanted.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(cannot_write(Path::new("stdout"), &e)),
        _ => Ok(()),
    }
}

/// Writes `text` where it goes.
pub fn put(sink: &Sink, text: &str) -> Result<(), Error> {
    match sink {
        Sink::Stdout => print(text),
        Sink::File(path) => write(path, text),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|e| {
        // Half an array is of no use to anybody; a device or pipe is not ours to remove.
        if path.is_file() {
            let _ = std::fs::remove_file(path);
        }
        cannot_write(path, &e)
    })
}

/// Sees before hours of running that the JSON can be written.
pub fn sink(path: &Path) -> Result<Sink, Error> {
    if path == Path::new("-") {
        return Ok(Sink::Stdout);
    }
    if path.is_dir() {
        return Err(cannot_write(path, &"is a directory"));
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match parent.is_dir() {
        true => Ok(Sink::File(path.to_owned())),
        false => Err(cannot_write(path, &"no such directory")),
    }
}

fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::input(format_args!("cannot write {}: {error}", path.display()))
}
