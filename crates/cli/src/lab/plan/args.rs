//! The arguments of `lab run` and `lab make`, as they are typed.

use super::workload::{Files, Workload};
use crate::results::on::{On, parse_read_ahead};
use crate::size;
use clap::Args;
use std::path::PathBuf;

/// What is worth saying after the list of arguments.
const AFTER: &str = "\
Engines:
  kernel              the kernel's mmap
  kernel-random       the same with MADV_RANDOM
  kernel-sequential   the same with MADV_SEQUENTIAL
  kernel-parked       hugetlb: kernel with a second mapping in each process, which keeps the page tables when the
                      first is unmapped, as softfault has one
  pread               O_DIRECT reads by as many threads: what the device can give
  pread-cached        thrash: the same through a cache of the budget's size in the process
  direct              anon, write: O_DIRECT reads and writes of a page each, by as many threads, and no memory (a file
                      is written over by a MiB)
  softfault           this project's engine
  softfault:POLICIES  the same with other policies than the default, as in softfault:retry=mmap-lock+pin=no
Policies, the default first:
  lock=refcount|rwsem|biased       what the lock of a mapping is
  reuse=typesafe|rcu               whether an unmapped mapping's slot is another's at once, or after a grace period
  mmap=phase-fair|linux            the order in which readers and writers get mmap_lock
  retry=vma-lock|mmap-lock|held    under which lock a fault comes back from I/O
  pin=yes|no                       whether it holds the page that it waited for
  miss=adaptive|baseline|p1|p2|both  what read-ahead takes for a hit
  share=vma-lock|document|i-mmap-rwsem  hugetlb on soft: what keeps a shared page table from going under a fault
  around=yes|no                    hugetlb on soft: whether a fault maps its page's neighbours that the file has
  join=leaf|fault-mutex            hugetlb on soft: what a fault takes that finds its page in others' page table
  left=kept|freed                  hugetlb on soft: what becomes of a page table when its last mapping goes
  fill=run|page                    whether the pages behind a first touch of anonymous memory are filled with it
  map=copy|move                    whether what is read in order is copied to the map, or its memory goes there
Read-ahead:
  kernel:read_ahead_kb=N  kernel with its file's device set to N KiB, kernel-random and kernel-sequential likewise;
  --read-ahead-kb 128,8192 names kernel and kernel-sequential so, once for each
Swap:
  anon, swap-retry and snapshot touch anonymous memory four times the budget. softfault has a swap file in --dir;
  kernel gets one there, and a memory cgroup of the size of the budget, where it is root. Pages are populated
  first, which is not counted; every read is checked, and all pages once more at the end.";

/// Arguments of `lab run`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct RunArgs {
    /// What to run
    pub workload: Workload,
    /// Engines to run it on (see below); ratios are against the first
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "kernel,softfault"
    )]
    pub on: Vec<On>,
    /// Run kernel and kernel-sequential once at each of these read-aheads (KiB) of the device that the file lies
    /// on, which takes root; it is restored after each row. kernel-random reads nothing ahead at any
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = parse_read_ahead
    )]
    pub read_ahead_kb: Vec<u32>,
    /// A file to read; what is read is checked if `lab make` made it
    #[arg(long, value_name = "PATH", conflicts_with = "file_size")]
    pub file: Option<PathBuf>,
    /// Length of the file to make, or of what is mapped [default: 4G; thrash: 16M for each thread;
    /// warm-start, write, anon, swap-retry and snapshot: four times --memory in all; pft: 64M for each thread; spf: 64K;
    /// hugetlb: as much as the pool has, up to 1G]
    #[arg(long, visible_alias = "size", value_name = "SIZE", value_parser = size::parse)]
    pub file_size: Option<u64>,
    /// Where to make files; they have no name and vanish with the command
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// The budget: softfault's own, and the kernel's cgroup limit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    pub memory: u64,
    /// Threads; of several numbers each is a row [default: sparse, many and scan 1, random and write 32, thrash 500,
    /// warm-start and storm 16, spf and anon 8, pft 1,2,4, swap-retry 32, snapshot 4]; of hugetlb processes [default: 2]
    #[arg(
        long,
        visible_alias = "processes",
        value_name = "LIST",
        value_delimiter = ','
    )]
    pub threads: Vec<usize>,
    /// How long timed workloads run, snapshot before it forks [default: 10, thrash 20, pft, spf, hugetlb and snapshot 5;
    /// warm-start and swap-retry end when their work is done]
    #[arg(long, value_name = "N")]
    pub seconds: Option<f64>,
    /// Part of the file's pages that sparse touches [default: 1]
    #[arg(long, value_name = "PERCENT")]
    pub touch: Option<f64>,
    /// sparse: random, sequential, strideN [default: random,stride1021,stride2053,stride4099,sequential];
    /// many: cold, present [default: both]; write: sequential, append, random, zipf [default: all
    /// but append]; scan: cold, warm, remap [default: all]; pft: own, shared [default: both]; anon: uniform, zipf [default:
    /// both]; swap-retry and snapshot: the same [default: uniform]; hugetlb: what the file is like at the start: empty,
    /// emptied (before each round), populated, and scan, which reads a populated one [default: empty,populated]
    #[arg(
        long,
        visible_alias = "start",
        value_name = "LIST",
        value_delimiter = ','
    )]
    pub pattern: Vec<String>,
    /// What thrash's files hold [default: data]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub files: Vec<Files>,
    /// write: a flush each so many pages, besides the one at the end
    #[arg(long, value_name = "PAGES")]
    pub flush_every: Option<u64>,
    /// How uneven zipf is, above 0 and below 1 [default: 0.99]
    #[arg(long, value_name = "N")]
    pub theta: Option<f64>,
    /// Part of the accesses that write [default: anon 50, swap-retry 10, snapshot 100]
    #[arg(long, value_name = "PERCENT")]
    pub writes: Option<u64>,
    /// Runs of each row
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repeat: u32,
    /// Seed of the data and of random orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Kill a run that has not ended after so many seconds [default: three times --seconds, or 120; for what
    /// is populated first a second more for each 8M]
    #[arg(long, value_name = "SECONDS")]
    pub give_up: Option<f64>,
    /// Write all single runs as a JSON array; `-` is stdout (the table then goes to stderr)
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Leave the rest of the system's caches alone: drop only the file's own pages before a run
    #[arg(long)]
    pub keep_system_caches: bool,
}

/// Arguments of `lab make`.
#[derive(Args, Debug)]
pub struct MakeArgs {
    /// The file to make; it must not be there yet
    pub path: PathBuf,
    /// Its length
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size::parse)]
    pub file_size: u64,
    /// Seed of its data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}
