//! `softfault lab profile`: where a fault's time goes, stage by stage, for each kind of fault.
//!
//! ```text
//!   kinds, ways to be told ─► for each of both: a process of its own, the same command with one of each
//!                                   └─► prepare ─► touches, one at a time ─► column
//!   table ◄─ columns as JSON ◄──────────┘
//! ```
//! One thread touches: this measures the cost of a single fault, and `lab run` the effects of threads on each other.

mod column;
mod kind;
mod prepare;
mod table;
mod touch;

use super::{fill, supervise};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::output::{self, Sink};
use crate::results::on::twice;
use clap::{Args, ValueEnum};
use column::Column;
use kind::{Kind, ToldBy};
use std::path::{Path, PathBuf};

/// The text after the list of arguments.
const AFTER: &str = "\
One thread touches pages, each in a way that makes a fault of the chosen kind. The time from before the touch to after
it is divided into stages: the clock is read at fixed points of the fault, and the time since the previous point belongs
to one stage. So the stages of a column sum to its total. Two touches in a row are recorded in this way, then two with
the clock read only before and after: the difference of the two medians is the cost of the recording. A touch that was
not of the chosen kind (it found the page, or read where it should have found it) is counted separately, and is in no figure.

Times are wall-clock times: in the stages that wait (read, folio wait) the processor is free for other threads.";

/// Arguments of `lab profile`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ProfileArgs {
    /// Kinds of fault, a column each [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    kind: Vec<Kind>,
    /// How the kernel reports the faults: a table each
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "signals,messages"
    )]
    faults: Vec<ToldBy>,
    /// Number of recorded touches of each kind; the same number is not recorded
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    touches: u64,
    /// The directory for files and swap that the command makes; they have no name, and are gone when it ends
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Seed of the data and of the orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the columns as JSON to this file; `-` is stdout
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &ProfileArgs) -> Result<(), Error> {
    let kinds = match args.kind.is_empty() {
        true => Kind::value_variants(),
        false => &args.kind,
    };
    if let Some(kind) = twice(&args.kind) {
        return Err(Error::input(format_args!(
            "--kind has {} twice",
            kind.name()
        )));
    }
    if let Some(told) = twice(&args.faults) {
        return Err(Error::input(format_args!(
            "--faults has {} twice",
            told.name()
        )));
    }
    let sink = |path: &Path| output::sink(path, &[]);
    let sink = args.json.as_deref().map(sink).transpose()?;
    let interrupt = Interrupt::catch()?;
    let columns = match (kinds, &args.faults[..]) {
        // How the kernel tells of faults is chosen once in a process, and the state that one kind leaves behind is not the next one's.
        (&[kind], &[told]) => vec![column(args, kind, told, &interrupt)?],
        (kinds, told) => (told.iter())
            .flat_map(|&told| kinds.iter().map(move |&kind| (kind, told)))
            .map(|(kind, told)| apart(args, kind, told, &interrupt))
            .collect::<Result<_, _>>()?,
    };
    let text = table::tables(&columns);
    let json = serde_json::to_string_pretty(&columns).map_err(Error::failed)? + "\n";
    let taken = matches!(sink, Some(Sink::Stdout));
    output::both(sink.as_ref().map(|sink| (sink, &json[..])), &text, taken)
}

/// Measures a kind, in this process.
fn column(
    args: &ProfileArgs,
    kind: Kind,
    told: ToldBy,
    interrupt: &Interrupt,
) -> Result<Column, Error> {
    let place = prepare::Place {
        dir: &args.dir,
        seed: args.seed,
        touches: args.touches,
    };
    match prepare::scene(kind, told, place, interrupt)? {
        Err(why) => Ok(Column::not_run(kind, told, why)),
        Ok(scene) => touch::record(&scene, kind, told, args.touches, interrupt),
    }
}

/// The same, in a process of its own.
fn apart(
    args: &ProfileArgs,
    kind: Kind,
    told: ToldBy,
    interrupt: &Interrupt,
) -> Result<Column, Error> {
    let mut command = supervise::this_program();
    command
        .args(["lab", "profile", "--json", "-"])
        .args(["--kind", kind.name(), "--faults", told.name()])
        .args(["--touches", &args.touches.to_string()])
        .args(["--seed", &args.seed.to_string()])
        .arg("--dir")
        .arg(&args.dir);
    let ended = supervise::finish(&mut command, interrupt)?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        let said = said.lines().last().unwrap_or("it printed nothing");
        let said = said.strip_prefix("error: ").unwrap_or(said);
        let (kind, told, status) = (kind.name(), told.name(), ended.status);
        return Err(match status.code() {
            Some(2) => Error::input(said),
            Some(_) => Error::failed(format_args!("{kind} by {told}: {said}")),
            None => Error::failed(format_args!("{kind} by {told}: {said} ({status})")),
        });
    }
    let columns: Vec<Column> = serde_json::from_slice(&ended.stdout).map_err(Error::failed)?;
    let first = columns.into_iter().next();
    let (kind, told) = (kind.name(), told.name());
    let nothing = || {
        Error::failed(format_args!(
            "{kind} by {told}: its process reported no column"
        ))
    };
    first.ok_or_else(nothing)
}
