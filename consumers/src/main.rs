//! Programs that others wrote, with memmap2 and with softfault in its place.
//!
//! ```text
//! cargo run --release --manifest-path consumers/Cargo.toml
//! ```
//!
//! | file | has |
//! |---|---|
//! | `programs` | how each is built, at a pinned version, twice |
//! | `files` | what they read: made once, and put out of the page cache |
//! | `cgroup` | a memory cgroup to run one in, and to lower its limit |
//! | `read_ahead` | how far the kernel reads ahead on the disk |
//! | `interrupt` | Ctrl-C: what was set is put back |
//! | `run` | one run: time, processor time, bytes read, and what softfault says that it served |
//! | `sources` | where the sources of published crates are |
//! | `crate_tests` | the own tests of crates that write to files, over both |
//! | `unmodified` | programs as their distributions built them, under `softfault run` |
//! | `overhead` | what `softfault run` costs where it takes nothing |
//! | `pressure` | programs whose data are several times the memory they may have: the kernel's mapping, and `softfault run` |
//! | `memmap2_tests` | memmap2's own tests, over softfault |
//! | `rows` | what is compared, and how often |

mod cgroup;
mod crate_tests;
mod files;
mod interrupt;
mod memmap2_tests;
mod overhead;
mod pressure;
mod programs;
mod read_ahead;
mod rows;
mod run;
mod sources;
mod unmodified;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Builds b3sum, ripgrep and a program over tantivy with memmap2 and with softfault in its place, runs both in
/// turn, checks that they answer the same, and prints a table.
///
/// Programs and files stay in the directory, for the next time. With root the rows in a memory cgroup are
/// run too, and --read-ahead-kb can be set.
#[derive(Parser)]
#[command(name = "softfault-consumers", version)]
pub struct Args {
    /// Only these: b3sum, ripgrep, tantivy
    #[arg(long, value_delimiter = ',', value_parser = ["b3sum", "ripgrep", "tantivy"])]
    only: Vec<String>,
    /// MiB of the file for b3sum; ripgrep's is half of it
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    size_mib: u64,
    /// Files of ripgrep's tree
    #[arg(long, default_value_t = 27_761)]
    tree: usize,
    /// Documents of tantivy's index: 900,000 are 1.1 GiB
    #[arg(long, default_value_t = 900_000)]
    documents: u64,
    /// Searches
    #[arg(long, default_value_t = 2000)]
    queries: u64,
    /// Runs of each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    repeat: u32,
    /// Seconds after which a run is given up
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// How far the kernel reads ahead, in KiB; several: all rows for each. Needs root
    #[arg(long, value_delimiter = ',')]
    read_ahead_kb: Vec<u32>,
    /// Only runs memmap2's own tests, with softfault in its place
    #[arg(long)]
    memmap2_tests: bool,
    /// Only runs the own tests of crates that write to files through maps, with both
    #[arg(long, conflicts_with = "memmap2_tests")]
    crate_tests: bool,
    /// Only runs programs that nobody built anew, under `softfault run` and without: SQLite, git, ripgrep, numpy, LMDB,
    /// usearch, RocksDB
    #[arg(long, conflicts_with_all = ["memmap2_tests", "crate_tests"])]
    unmodified: bool,
    /// Only measures what `softfault run` costs a program of which it takes nothing, beside an empty library
    #[arg(long, conflicts_with_all = ["memmap2_tests", "crate_tests", "unmodified"])]
    overhead: bool,
    /// Only runs programs whose data are several times the memory they may have, over the kernel's mapping and under
    /// `softfault run`. Needs root, for the memory cgroup and the disk's read-ahead
    #[arg(long, value_delimiter = ',', value_parser = pressure::NAMES, num_args = 1..,
        conflicts_with_all = ["memmap2_tests", "crate_tests", "unmodified", "overhead"])]
    pressure: Vec<String>,
    /// MiB that --unmodified gives them; their files have four times that and more
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(16..=1 << 16))]
    budget_mib: u64,
    /// Where programs are built and files made: some 10 GiB
    #[arg(long, default_value = "consumers/target/work")]
    dir: PathBuf,
}

fn main() -> ExitCode {
    interrupt::watch();
    let args = Args::parse();
    let done = match () {
        () if args.memmap2_tests => memmap2_tests::run(&args.dir),
        () if args.crate_tests => crate_tests::run(&args.dir),
        () if !args.pressure.is_empty() => pressure::run(&args),
        () if args.overhead => overhead::run(&args.dir),
        () if args.unmodified => unmodified::run(&args.dir, args.budget_mib),
        () => rows::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softfault-consumers: {error}");
            ExitCode::from(2)
        }
    }
}
