//! `softfault sim calibrate`: this machine as a topology.

use super::presets;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::output;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use softfault_sim::calibrate::{Failure, Options, calibrate};
use softfault_sim::preset;
use std::path::PathBuf;

/// Arguments of `sim calibrate`.
#[derive(Args, Debug)]
#[command(
    after_long_help = "It takes a minute or two, and both CPUs at times: other programs that run meanwhile change the figures. Values \
        that this machine does not have or does not allow to measure are taken from --lacking; `source` in the \
        result names them."
)]
pub struct CalibrateArgs {
    /// The name of the topology
    #[arg(long, default_value = "this-machine")]
    name: String,
    /// The file to write; `-` is stdout
    #[arg(long, value_name = "PATH", default_value = "-")]
    json: PathBuf,
    /// The directory whose disk is measured; a file of 256 MiB is made there
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The topology that supplies the values that cannot be measured here
    #[arg(long, value_name = "NAME|PATH", default_value = "zen5-256")]
    lacking: String,
    /// Take fewer samples: some seconds, with rougher figures
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
pub fn run(args: &CalibrateArgs) -> Result<(), Error> {
    let lacking = preset::find(&args.lacking).map_err(Error::input)?;
    let inputs = preset::file_of(&args.lacking);
    let sink = output::sink(&args.json, inputs.as_slice())?;
    let interrupt = Interrupt::catch()?;
    let style = ProgressStyle::with_template("calibrate {spinner} {elapsed} {msg}");
    let bar = ProgressBar::new_spinner().with_style(style.expect("a well-formed template"));
    let mut tell = |what: &str| {
        bar.set_message(what.to_owned());
        bar.tick();
        interrupt.check().is_ok()
    };
    let options = Options {
        name: args.name.clone(),
        quick: args.quick,
        dir: args.dir.clone(),
        lacking,
    };
    let measured = calibrate(&options, &mut tell);
    bar.finish_and_clear();
    let topology = match measured {
        Ok(topology) => topology,
        Err(Failure::Stopped) => return interrupt.check(),
        Err(Failure::Failed(why)) => return Err(Error::input(why)),
    };
    output::put(&sink, &presets::json(&topology))
}
