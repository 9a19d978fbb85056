//! `softfault sum`: a file's SHA-256, read through a softfault map.

use crate::error::Error;
use crate::lab::command;
use crate::lab::files::{byte_bar, open_regular};
use crate::size;
use clap::Args;
use sha2::{Digest, Sha256};
use softfault::{Advice, Engine, Stats};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes pinned and hashed between two movements of the bar.
const CHUNK: usize = 256 << 10;

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
    let name = args.file.display();
    let fail = |e: &dyn std::fmt::Display| Error::input(format_args!("{name}: {e}"));
    let file = open_regular(&args.file)?;
    let memory = usize::try_from(args.memory).map_err(Error::input)?;
    let engine = Engine::builder()
        .memory(memory)
        .build()
        .map_err(Error::input)?;
    let start = Instant::now();
    // SAFETY: pages are pinned while they are hashed. Who writes to the file meanwhile gets the sum of a
    // mixture, as from sha256sum.
    let map = unsafe { engine.map(&file) }.map_err(|e| fail(&e))?;
    map.advise(Advice::Sequential).map_err(|e| fail(&e))?;
    let bar = byte_bar(map.len() as u64, "sha256");
    let mut hash = Sha256::new();
    for first in (0..map.len()).step_by(CHUNK) {
        // Pinned rather than touched: a file that shrinks is an error to tell, not a signal to die of.
        let chunk = map
            .pin(first..map.len().min(first + CHUNK))
            .map_err(|e| fail(&e))?;
        hash.update(&*chunk);
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    let sum: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    command::print(&format!("{sum}  {name}\n"))?;
    eprintln!("{}", summary(&engine.stats(), map.len(), start.elapsed()));
    Ok(())
}

fn summary(stats: &Stats, bytes: usize, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-9);
    format!(
        "{} in {seconds:.2} s ({}/s); {} read from the disk; {} faults; {} of {} pages read ahead used; \
         at most {} in memory",
        size::show(bytes as u64),
        size::show((bytes as f64 / seconds) as u64),
        size::show(stats.bytes_read),
        stats.faults,
        stats.readahead_used,
        stats.readahead_pages,
        size::show(stats.peak_bytes)
    )
}
