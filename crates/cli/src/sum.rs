//! `softfault sum`: a file's SHA-256, read through a softfault map.

use crate::error::Error;
use crate::lab::command;
use crate::lab::engine::{self, On};
use crate::lab::files::{self, byte_bar};
use crate::size;
use clap::Args;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// Bytes hashed between two movements of the bar.
const CHUNK: usize = 4 << 20;

/// Arguments of `sum`.
#[derive(Args, Debug)]
pub struct SumArgs {
    /// The file
    file: PathBuf,
    /// The budget of the map
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    memory: u64,
}

/// Prints the sum as sha256sum does on stdout, and what it took on stderr.
pub fn run(args: &SumArgs) -> Result<(), Error> {
    let file = files::open_regular(&args.file)?;
    let bytes = file.metadata().map_err(Error::failed)?.len();
    let engine = engine::build(On::Softfault, args.memory).map_err(Error::Input)?;
    let engine = engine.expect("softfault maps");
    let mut hash = Sha256::new();
    if bytes > 0 {
        let map = engine
            .map(&file)
            .map_err(|e| Error::input(format_args!("{}: {e}", args.file.display())))?;
        let bar = byte_bar(bytes, "sha256");
        for chunk in map.bytes().chunks(CHUNK) {
            hash.update(chunk);
            bar.inc(chunk.len() as u64);
        }
        bar.finish_and_clear();
    }
    let sum: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    command::print(&format!("{sum}  {}\n", args.file.display()))?;
    if let Some(stats) = engine.stats() {
        eprintln!("{}", stats.summary());
    }
    Ok(())
}
