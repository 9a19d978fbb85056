//! `softfault man`: the manual pages, made from the help texts of the commands.

use crate::error::Error;
use crate::output;
use crate::run::{Section, sections};
use clap::{Arg, Args, Command};
use clap_mangen::Man;
use roff::{Roff, bold, roman};
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The directory for softfault.1, softfault-lab-run.1 and so on; it is made if it does not exist
    dir: PathBuf,
}

/// Writes a page for `command`, and one for each command below it.
pub fn run(args: &ManArgs, mut command: Command) -> Result<(), Error> {
    // Full names, and the options that all commands inherit.
    command.build();
    fs::create_dir_all(&args.dir)
        .map_err(|e| Error::input(format_args!("cannot make {}: {e}", args.dir.display())))?;
    write_pages(&args.dir, &command)
}

fn write_pages(dir: &Path, command: &Command) -> Result<(), Error> {
    // `help` repeats the pages.
    let others = command
        .get_subcommands()
        .filter(|below| below.get_name() != "help");
    for below in others {
        write_pages(dir, below)?;
    }
    // Only the first command knows the version by itself.
    let source = concat!("softfault ", env!("CARGO_PKG_VERSION"));
    let mut command = command.clone().mut_args(name_aliases);
    // Beside `lab run` there is `run`.
    let sections = match command.get_bin_name().unwrap_or_default() {
        "softfault run" => sections(),
        _ => Vec::new(),
    };
    if !sections.is_empty() {
        // They say more.
        command = command.after_help(None::<&str>);
    }
    let page = Man::new(command).source(source);
    let mut text = Vec::new();
    page.render(&mut text).map_err(Error::failed)?;
    for section in sections {
        text.extend(in_roff(&section).into_bytes());
    }
    let text = String::from_utf8(text).map_err(Error::failed)?;
    output::write(&dir.join(page.get_filename()), &text)
}

/// A section as manual pages have them.
fn in_roff(section: &Section) -> String {
    let mut roff = Roff::new();
    roff.control("SH", [section.title]);
    for (name, text) in &section.rows {
        roff.control("TP", []);
        roff.text([bold(name)]).text([roman(text)]);
    }
    roff.to_roff()
}

/// The option with its other names in its text: help shows them, and pages do not by themselves.
fn name_aliases(option: Arg) -> Arg {
    let aliases = option.get_visible_aliases().unwrap_or_default();
    if aliases.is_empty() {
        return option;
    }
    let aliases: Vec<String> = aliases.iter().map(|alias| format!("--{alias}")).collect();
    let text = option.get_long_help().or_else(|| option.get_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    option.long_help(format!("{text} [alias: {}]", aliases.join(", ")))
}
