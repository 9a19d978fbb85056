//! The softfault command: `lab run` measures the documents' workloads on any engine, `lab compare` and
//! `lab report` show the results, `sim` runs them on simulated machines, `sum` reads a file through a
//! softfault map, `run` runs a program whose file mappings softfault serves, `tour` shows the purpose of the project, `doctor` checks this machine;
//! `man` and `completions` write files that are installed with the command.

mod compare;
mod completions;
mod doctor;
#[cfg(test)]
mod documented;
mod error;
mod figure;
mod interrupt;
mod lab;
mod man;
mod output;
mod report;
mod results;
mod run;
mod sim;
mod size;
mod standard_input;
mod sum;
mod table;
mod tour;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Simulated threads take memory from their machine, so that lines are shared there as they would be here;
/// all others take the system's.
#[global_allocator]
static HEAP: softfault_sim::Heap = softfault_sim::Heap;

/// Page faults served in user space, under a fixed memory budget.
#[derive(Parser)]
#[command(name = "softfault", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run small versions of five workloads on the kernel and on softfault, side by side, in about three minutes
    Tour(tour::TourArgs),
    /// Measure workloads on any engine, side by side
    #[command(subcommand)]
    Lab(LabCommand),
    /// Run workloads on simulated machines of many cores
    #[command(subcommand)]
    Sim(Box<sim::SimCommand>),
    /// Print a file's SHA-256, read through a softfault map
    Sum(sum::SumArgs),
    /// Run a program under a memory budget: softfault serves its large file mappings
    Run(Box<run::RunArgs>),
    /// Check this machine for the features that softfault needs: the cost of each missing feature, and the command that enables it
    Doctor(doctor::DoctorArgs),
    /// Write the manual pages, one for each command
    Man(man::ManArgs),
    /// Print a shell's completion script for this command
    Completions(completions::CompletionsArgs),
}

#[derive(Subcommand)]
enum LabCommand {
    /// Run one workload
    Run(Box<lab::plan::RunArgs>),
    /// Measure where the time of a fault goes, by kind of fault
    Profile(lab::profile::ProfileArgs),
    /// Make a file of known data, for many runs
    Make(lab::plan::MakeArgs),
    /// Compare two result files, or two engines of one result file
    Compare(compare::CompareArgs),
    /// Write a page of charts and tables from result files
    Report(report::ReportArgs),
}

fn main() -> ExitCode {
    // One run of the lab, in a process of its own. Users do not type this command: help and completions leave it out.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == lab::supervise::CHILD_COMMAND)
    {
        prepare_process();
        return lab::child::main();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return refuse(&e),
    };
    let open_files = match &cli.command {
        // The program that replaces us gets the process unchanged.
        Command::Run(_) => None,
        _ => prepare_process(),
    };
    let result = match &cli.command {
        Command::Tour(args) => tour::run(args),
        Command::Lab(command) => match command {
            LabCommand::Run(args) => lab::command::run(args),
            LabCommand::Profile(args) => lab::profile::run(args),
            LabCommand::Make(args) => lab::command::make(args),
            LabCommand::Compare(args) => compare::run(args),
            LabCommand::Report(args) => report::run(args),
        },
        Command::Sim(command) => sim::run(command),
        Command::Sum(args) => sum::run(args),
        Command::Run(args) => run::run(args),
        Command::Doctor(args) => match doctor::run(args, open_files) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Man(args) => man::run(args, Cli::command()),
        Command::Completions(args) => completions::run(args, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::Interrupted(_)) {
                output::tell(&format!("error: {error}\n"));
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// Help and version as clap prints them; a wrong argument as one line.
fn refuse(error: &clap::Error) -> ExitCode {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    let missing = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if asked || error.kind() == missing {
        // A reader that went away is no reason to fail.
        if let Err(why) = error.print().and_then(|()| io::stdout().flush())
            && why.kind() != io::ErrorKind::BrokenPipe
        {
            let why = output::cannot_write(Path::new("stdout"), &why);
            output::tell(&format!("error: {why}\n"));
            return ExitCode::from(why.exit_code());
        }
    } else {
        let text = error.to_string();
        // The mistake, and the first suggestion; the usage is in the help.
        let mut parts = text.split("\n\n");
        let wrong = in_a_line(parts.next().unwrap_or(&text));
        let tip = parts.find_map(|part| part.trim_start().strip_prefix("tip: ")?.lines().next());
        // A number below zero is no file of this name.
        let is_number = |tip: &str| {
            let rest = tip.strip_prefix("to pass '-");
            rest.is_some_and(|rest| rest.starts_with(char::is_numeric))
        };
        let tip = tip.filter(|tip| !is_number(tip));
        match tip {
            Some(tip) => output::tell(&format!("{wrong}: {}\n", in_a_line(tip))),
            None => output::tell(&format!("{wrong}\n")),
        }
    }
    ExitCode::from(error.exit_code() as u8)
}

fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A write past the file-size limit is an error to tell, not a signal to die of; and a thrash of 500
/// threads needs more descriptors than the usual soft limit. Returns the old limit; `None` is unlimited or unknown.
fn prepare_process() -> Option<u64> {
    // SAFETY: an ignored signal runs no code; the limit is a live structure.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut files = std::mem::zeroed::<libc::rlimit>();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0 {
            let before = files.rlim_cur;
            files.rlim_cur = files.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &files);
            return (before != libc::RLIM_INFINITY).then_some(before);
        }
    }
    None
}
