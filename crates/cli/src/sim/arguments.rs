//! What is typed for a simulation.

use crate::size;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `sim pft` and the other workloads.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Times are virtual but for wall_s and host_cpu_s. The same seeds give the same results on any machine; each run also \
        has a digest of all that happened in it.\n\n\
        With --seeds N the first run has the machine as it is; of the others each has every cost drawn anew, \
        up to --vary percent off. Tables then show low..median..high. One seed is the same machine for all \
        policies, so changes are those of pairs.\n\n\
        A run that deadlocks or starves says who waits for what, and the exit code is 1. Ctrl-C ends at once."
)]
pub struct RunArgs {
    /// CPUs that the machine uses, each number a run: 1,4,21
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = above_zero)]
    pub cores: Vec<usize>,
    /// Threads; as many as cores, 500 in thrash, four times as many in swap-retry
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub threads: Option<usize>,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// How many seeds a band has; 3 for pft and spf, else 1
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub seeds: Option<usize>,
    /// How far off the costs of the second seed's machine may be, and of all further ones
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    pub vary: f64,
    /// The machine: one of `sim presets`, or a file
    #[arg(long, value_name = "NAME|PATH")]
    pub topology: Option<String>,
    /// In which order its CPUs are filled: spread or packed; else as the topology says, warm-start and swap-retry packed
    #[arg(long, value_name = "ORDER", value_parser = ["spread", "packed"])]
    pub placement: Option<String>,
    /// Policies side by side, the first the baseline: lock=rwsem,lock=refcount; `default` is all defaults, and all have fill=page
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Page tables: soft, or uffd with what the kernel beneath costs
    #[arg(long, value_name = "KIND", default_value = "soft")]
    pub mmu: String,
    /// pft: one mapping for all threads
    #[arg(long)]
    pub shared: bool,
    /// The budget
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub memory: Option<u64>,
    /// pft, spf: bytes that a thread maps at a time
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub region: Option<u64>,
    /// swap-retry, anon: bytes of the anonymous memory, four times the budget; hugetlb: of the file, 250G
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub size: Option<u64>,
    /// anon: draw pages by Zipf's law with this theta, 0.99 for instance; else all alike
    #[arg(long, value_name = "THETA", default_value_t = 0.0)]
    pub theta: f64,
    /// thrash, storm: length of a file
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub file_size: Option<u64>,
    /// hugetlb: whether the file has its pages when the clock starts
    #[arg(long, value_name = "HOW", default_value = "populated", value_parser = ["populated", "empty"])]
    pub start: String,
    /// hugetlb: all threads begin at once; else they are spread over a round
    #[arg(long)]
    pub together: bool,
    /// warm-start, swap-retry: nobody forks
    #[arg(long)]
    pub no_forks: bool,
    /// warm-start: how many files there are
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub files: Option<usize>,
    /// storm: how many of the threads map and unmap
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub mappers: Option<usize>,
    /// Virtual seconds of a run
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Virtual seconds after which a thread that waits counts as starved
    #[arg(long, value_name = "S")]
    pub patience: Option<f64>,
    /// How many of a million pages of the disk cannot be read
    #[arg(long, value_name = "PER_MILLION", default_value_t = 0)]
    pub io_errors: u32,
    /// Write all operations of the run there, a line each; takes a single run
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// Print the N places in the source that waited most for cache lines
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub hot: usize,
    /// Write the rows as JSON; `-` is stdout, and the tables go to stderr
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Simulations at a time; as many as there are CPUs here
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub jobs: Option<usize>,
}

fn above_zero(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(0) => Err("must be above zero".into()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("`{text}` is no number above zero")),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| format!("`{text}` is no number from 0 to 100"))
}
