//! `softfault sim`: the documents' workloads on simulated machines of N cores.

mod calibrate;
mod presets;

use crate::error::Error;
use clap::Subcommand;

/// What is simulated, or measured for it.
#[derive(Subcommand, Debug)]
pub enum SimCommand {
    /// Measure this machine, and write a topology that --topology takes
    Calibrate(calibrate::CalibrateArgs),
    /// List the machines that have a name, with the sources of their figures
    Presets(presets::PresetsArgs),
}

/// Runs the command.
pub fn run(command: &SimCommand) -> Result<(), Error> {
    match command {
        SimCommand::Calibrate(args) => calibrate::run(args),
        SimCommand::Presets(args) => presets::run(args),
    }
}
