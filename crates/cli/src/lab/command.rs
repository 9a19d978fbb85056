//! `softfault lab run`: runs a plan, prints the table, writes the JSON. `softfault lab make`: a file to
//! run over.

use super::files;
use super::plan::{self, MakeArgs, Plan, RunArgs};
use super::{Lab, table};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::output::{self, Sink};
use crate::results::json;
use crate::results::row::Row;
use std::path::Path;

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    let plan = Plan::new(args)?;
    let file: Vec<&Path> = args.file.as_deref().into_iter().collect();
    let sink = |path: &Path| output::sink(path, &file);
    let sink = args.json.as_deref().map(sink).transpose()?;
    let interrupt = Interrupt::catch()?;
    let mut rows = Vec::new();
    let ran = Lab::new(&interrupt).run(&plan, &mut rows);
    if rows.is_empty() || matches!(ran, Err(Error::Interrupted(_))) {
        return ran;
    }
    let mut text = table::tables(&rows);
    text += &table::read_ahead(&rows);
    for note in table::notes(&rows) {
        text += &format!("note: {note}\n");
    }
    let json = json(&rows);
    let taken = matches!(sink, Some(Sink::Stdout));
    output::both(sink.as_ref().map(|sink| (sink, &json[..])), &text, taken)?;
    ran?;
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
