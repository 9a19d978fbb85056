//! `softfault doctor`: what this machine allows, by trying it, what each lack costs, and how to mend it.
//!
//! One file is one check; [`CHECKS`] is their order. A check runs in a child process (`child`), needs no
//! privilege and leaves nothing behind. Nothing is timed here: that is the lab's work.

mod batched_flush;
mod check;
mod child;
mod direct_reads;
mod huge_frames;
mod huge_pool;
mod io_submit;
mod io_uring;
mod kernel;
mod lockable_memory;
mod machine;
mod mappings;
mod memory;
mod memory_cgroup;
mod open_files;
mod page_table_freeing;
mod pagemap_scan;
mod place;
mod populate;
mod report;
mod self_madvise;
mod served_fault;
mod sigbus_mode;
mod swap;
mod swap_file;
mod time_stamps;
mod uffd;
mod uffd_move;
mod userfaultfd;

use crate::error::Error;
use crate::lab::command::print;
use check::{Check, Finding, Whereabouts};
use clap::Args;
use place::Place;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// The directory whose file system is tried; files in it have no name and vanish with the command
    /// [default: the current directory, or else the one for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// An array of objects on stdout: name, state (ok, slower, missing), found, costs, mend
    #[arg(long)]
    json: bool,
}

/// All that is tried, in the order of the table: what maps need, what makes them fast, what the lab
/// needs, what is to come.
const CHECKS: &[Check] = &[
    kernel::CHECK,
    userfaultfd::CHECK,
    sigbus_mode::CHECK,
    served_fault::CHECK,
    direct_reads::CHECK,
    io_submit::CHECK,
    io_uring::CHECK,
    self_madvise::CHECK,
    batched_flush::CHECK,
    page_table_freeing::CHECK,
    time_stamps::CHECK,
    huge_frames::CHECK,
    open_files::CHECK,
    mappings::CHECK,
    lockable_memory::CHECK,
    swap::CHECK,
    swap_file::CHECK,
    memory_cgroup::CHECK,
    huge_pool::CHECK,
    pagemap_scan::CHECK,
    populate::CHECK,
    uffd_move::CHECK,
];

/// Tries everything and tells. `open_files` is the limit that the command was started with. The exit
/// code is 0 if maps can be served, 1 if not.
pub fn run(args: &DoctorArgs, open_files: Option<u64>) -> Result<ExitCode, Error> {
    let place = Place::find(args.dir.as_deref(), open_files)?;
    let findings: Vec<Finding> = CHECKS.iter().map(|check| find(check, &place)).collect();
    match args.json {
        true => {
            print(&report::json(&findings))?;
            eprint!("{}", report::summary(&findings));
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
