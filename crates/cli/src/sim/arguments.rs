//! The arguments of a simulation.

use crate::size;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `sim pft` and the other workloads.
#[derive(Args, Debug)]
#[command(
    after_long_help = "All times are virtual, except wall_s and host_cpu_s. The same seeds give the same results on any machine; each run also \
        has a digest of all its events.\n\n\
        With --seeds N the first run has the machine with the costs of the topology; each other run draws every cost anew, \
        up to --vary percent off. Tables then show low..median..high. One seed is the same machine for all \
        policies, so changes compare pairs of runs.\n\n\
        After a deadlock or starvation the run prints each waiting thread and the lock that it waits for, and the exit code is 1. Ctrl-C ends at once."
)]
pub struct RunArgs {
    /// Numbers of CPUs to simulate; each number of the list is a run: 1,4,21 [default: pft several, from 1 to all CPUs of the machine; thrash all;
    /// hugetlb 48; the others 8]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = above_zero)]
    pub cores: Vec<usize>,
    /// Number of threads [default: one for each core; thrash 500, swap-retry four for each core]
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub threads: Option<usize>,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Number of seeds of a band [default: pft, spf and loops 3, else 1]
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub seeds: Option<usize>,
    /// How far the costs of the second seed's machine, and of all later seeds, may differ from the topology
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    pub vary: f64,
    /// Run once more with each cost of the machine halved and with it doubled, and print how far the policies' rates depend on each
    #[arg(long, conflicts_with_all = ["seeds", "vary", "trace", "hot"])]
    pub sensitivity: bool,
    /// The machine: a name from `sim presets`, or a file [default: pft, spf, loops, anon and hugetlb broadwell-56, the others x86-256]
    #[arg(long, value_name = "NAME|PATH")]
    pub topology: Option<String>,
    /// The order in which CPUs are filled: spread or packed [default: that of the topology; warm-start and swap-retry packed]
    #[arg(long, value_name = "ORDER", value_parser = ["spread", "packed"])]
    pub placement: Option<String>,
    /// Policies to compare; the first is the baseline: lock=rwsem,lock=refcount; `default` is all defaults. All have fill=page [default: pft and
    /// spf lock=rwsem,lock=refcount,lock=biased; thrash retry=mmap-lock+pin=no,retry=vma-lock+pin=no,default; warm-start and storm the first
    /// two of these; swap-retry retry=mmap-lock+pin=no,pin=no,default,retry=held; hugetlb share=i-mmap-rwsem,share=document,share=vma-lock; anon
    /// and loops default]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Page tables: soft, or uffd, which adds the costs of the kernel
    #[arg(long, value_name = "KIND", default_value = "soft")]
    pub mmu: String,
    /// pft: one mapping for all threads
    #[arg(long)]
    pub shared: bool,
    /// loops: the verb that is measured [default: mmap]
    #[arg(long = "loop", value_name = "VERB", value_parser = ["mmap", "mmap-touch", "unmap-untouched", "unmap", "touch"])]
    pub verb: Option<String>,
    /// loops: all regions are parts of one mapping, which threads take in turn; without it, each region is a mapping of its own
    #[arg(long)]
    pub contended: bool,
    /// The budget [default: pft, spf and loops 8G, and more with a larger --region; thrash and warm-start 1G; storm 256M; swap-retry and
    /// anon 64M; hugetlb 8M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub memory: Option<u64>,
    /// pft, spf, loops: bytes that a thread maps at a time [default: pft 2M, spf 64K, loops 16K]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub region: Option<u64>,
    /// swap-retry, anon: bytes of the anonymous memory [default: four times the budget]; hugetlb: of the file [default: 250G]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub size: Option<u64>,
    /// anon: choose pages by Zipf's law with this theta, 0.99 for instance; 0 chooses them uniformly [default: 0]
    #[arg(long, value_name = "THETA")]
    pub theta: Option<f64>,
    /// thrash, storm: length of a file [default: thrash 16M, storm 1G]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub file_size: Option<u64>,
    /// hugetlb: whether the file has its pages at the start of the measurement [default: populated]
    #[arg(long, value_name = "HOW", value_parser = ["populated", "empty"])]
    pub start: Option<String>,
    /// hugetlb: all threads begin at the same time; without it, their starts are spread over a round
    #[arg(long)]
    pub together: bool,
    /// warm-start, swap-retry: no thread forks
    #[arg(long)]
    pub no_forks: bool,
    /// warm-start: number of files [default: 3906]
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub files: Option<usize>,
    /// storm: number of threads that map and unmap [default: 1]
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub mappers: Option<usize>,
    /// Duration of a run, in virtual seconds [default: pft, spf and loops 0.01, thrash 0.5, warm-start 1, storm 0.2, swap-retry 0.25, anon and
    /// hugetlb 0.1]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Virtual seconds after which a thread that waits counts as starved [default: 20]
    #[arg(long, value_name = "S")]
    pub starvation_timeout: Option<f64>,
    /// Number of unreadable pages of the disk, per million
    #[arg(long, value_name = "PER_MILLION", default_value_t = 0)]
    pub io_errors: u32,
    /// Write all operations of the run to this file, one a line; for a single run only
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// Print the N places in the source with the longest waits for cache lines, and the N with the longest sleeps
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub hot: usize,
    /// Write the rows as JSON to this file; `-` is stdout (the tables then go to stderr)
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Number of simulations at a time [default: the number of CPUs of this machine]
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub jobs: Option<usize>,
}

fn above_zero(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(0) => Err("must be above zero".into()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("`{text}` is not a number above zero")),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| format!("`{text}` is no number from 0 to 100"))
}
