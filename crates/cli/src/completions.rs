//! `softfault completions`: the file by which a shell completes the command's arguments.

use crate::error::Error;
use crate::output::print;
use clap::{Args, Command};
use clap_complete::Shell;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script for a shell.
pub fn run(args: &CompletionsArgs, mut command: Command) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "softfault", &mut script);
    let script = String::from_utf8(script).map_err(Error::failed)?;
    print(&script)
}
