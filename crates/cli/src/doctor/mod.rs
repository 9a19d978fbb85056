//! `softfault doctor`: tries the features that softfault uses, and prints the cost of each missing one and its remedy.
//!
//! A file has the checks of one subject; [`CHECKS`] is their order. A check runs in a child process (`child`), needs no
//! privilege and leaves nothing behind. Nothing is timed here: that is the lab's work.

mod check;
mod child;
mod eviction;
mod files;
mod huge_pages;
mod limits;
mod machine;
mod memory_cgroup;
mod pagemap_scan;
mod place;
mod read_ahead;
mod report;
mod run_library;
mod run_messages;
mod served_fault;
mod swap_file;
mod userfaultfd;

use crate::error::Error;
use crate::output::{print, tell};
use check::{Check, Finding, Whereabouts};
use clap::Args;
use place::Place;
use std::path::PathBuf;
use std::process::ExitCode;

pub use run_messages::no_messages;
pub use swap_file::no_swap;

/// Arguments of `doctor`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit code: 0 if softfault can serve maps here, 1 if it cannot, 2 if the arguments cannot be used."
)]
pub struct DoctorArgs {
    /// The directory whose file system is checked; the files made there have no name, and are gone when the command ends
    /// [default: the current directory, or else the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print a JSON array of objects on stdout: name, state (ok, slower, missing), found, costs, mend
    #[arg(long)]
    json: bool,
}

/// All checks, in the order of the table: needs of maps, and of `softfault run`, features that make them fast, needs of swap, of the lab and of huge
/// memory. A feature that none of them uses is not tried.
const CHECKS: &[Check] = &[
    machine::KERNEL,
    userfaultfd::OPENED,
    userfaultfd::SIGBUS_MODE,
    served_fault::CHECK,
    run_library::CHECK,
    run_messages::CHECK,
    files::DIRECT_READS,
    read_ahead::IO_SUBMIT,
    read_ahead::IO_URING,
    eviction::SELF_MADVISE,
    eviction::BATCHED_FLUSH,
    eviction::PAGE_TABLE_FREEING,
    files::TIME_STAMPS,
    pagemap_scan::CHECK,
    huge_pages::FRAMES,
    limits::OPEN_FILES,
    limits::MAPPINGS,
    swap_file::CHECK,
    memory_cgroup::CHECK,
    huge_pages::POOL,
];

/// Tries everything and tells. `open_files` is the limit that the command was started with. The exit
/// code is 0 if maps can be served, 1 if not.
pub fn run(args: &DoctorArgs, open_files: Option<u64>) -> Result<ExitCode, Error> {
    let place = Place::find(args.dir.as_deref(), open_files)?;
    let findings: Vec<Finding> = CHECKS.iter().map(|check| find(check, &place)).collect();
    match args.json {
        true => {
            print(&report::json(&findings))?;
            tell(&report::summary(&findings));
        }
        false => print(&(report::table(&findings) + &report::summary(&findings)))?,
    }
    Ok(match report::is_served(&findings) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn find(check: &Check, place: &Place) -> Finding {
    let tried = match check.whereabouts {
        Whereabouts::Child => child::try_in_child(|| (check.run)(place)),
        Whereabouts::Here => (check.run)(place),
    };
    Finding::new(check, tried)
}
