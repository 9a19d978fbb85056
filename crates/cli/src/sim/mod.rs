//! `softfault sim`: the documents' workloads on simulated machines of N cores.
//!
//! `arguments` is the command line, `plan` the runs that it means, `pool` runs them, `row` is the JSON
//! of one; `rates`, `slots`, `waits` and `sensitivity` print the tables, `documents` has the documents' own figures.

mod arguments;
mod band;
mod calibrate;
mod documents;
mod hot;
mod hugetlb;
mod plan;
mod pool;
mod presets;
mod rates;
mod refuse;
mod row;
mod run;
mod sensitivity;
mod slots;
mod trace;
mod waits;

use crate::error::Error;
use arguments::RunArgs;
use clap::Subcommand;
use softfault_sim::Workload;

/// The simulations, and the measurements for them.
#[derive(Subcommand, Debug)]
pub enum SimCommand {
    /// Document 004, page fault test: threads populate anonymous memory
    Pft(RunArgs),
    /// Document 000: each thread maps a file, touches all of it and unmaps, under a budget that is too small
    Thrash(RunArgs),
    /// Document 002: the start of an application, with mixed files, a thread of high priority, and forks
    WarmStart(RunArgs),
    /// Threads map a little anonymous memory, touch it and unmap it
    Spf(RunArgs),
    /// One verb in a loop: threads map, touch or unmap regions of 16 KiB, disjoint or contended
    Loops(RunArgs),
    /// Some threads map and unmap, while the others touch a file, in one address space
    Storm(RunArgs),
    /// Document 002, swap: faults on swapped-out pages, while other threads map, unmap and fork
    SwapRetry(RunArgs),
    /// Threads read and write anonymous memory, four times as large as the budget
    Anon(RunArgs),
    /// Document 001: address spaces map one file of huge pages, touch all of it and unmap
    Hugetlb(RunArgs),
    /// Measure this machine, and write a topology for --topology
    Calibrate(calibrate::CalibrateArgs),
    /// List the machines with a name, and the sources of their figures
    Presets(presets::PresetsArgs),
}

impl SimCommand {
    /// The workload and its arguments, for commands that simulate.
    fn simulated(&self) -> Option<(Workload, &RunArgs)> {
        Some(match self {
            Self::Pft(args) => (Workload::Pft, args),
            Self::Thrash(args) => (Workload::Thrash, args),
            Self::WarmStart(args) => (Workload::WarmStart, args),
            Self::Spf(args) => (Workload::Spf, args),
            Self::Loops(args) => (Workload::Loops, args),
            Self::Storm(args) => (Workload::Storm, args),
            Self::SwapRetry(args) => (Workload::SwapRetry, args),
            Self::Anon(args) => (Workload::Anon, args),
            Self::Hugetlb(args) => (Workload::Hugetlb, args),
            Self::Calibrate(_) | Self::Presets(_) => return None,
        })
    }
}

/// Runs the command.
pub fn run(command: &SimCommand) -> Result<(), Error> {
    match command {
        SimCommand::Calibrate(args) => calibrate::run(args),
        SimCommand::Presets(args) => presets::run(args),
        simulation => {
            let (workload, args) = simulation.simulated().expect("all others simulate");
            run::run(workload, args)
        }
    }
}

/// Looks at the command as [`run`] does before it simulates.
#[cfg(test)]
pub fn check(command: &SimCommand) -> Result<(), Error> {
    match command.simulated() {
        Some((workload, args)) => plan::plan(workload, args).map(drop),
        None => Ok(()),
    }
}
