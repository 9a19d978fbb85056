//! The arguments of `lab run` and `lab make`.

use super::workload::{Files, Workload};
use crate::results::on::{On, parse_read_ahead};
use crate::size;
use clap::Args;
use std::path::PathBuf;

/// The text after the list of arguments.
const AFTER: &str = "\
Engines:
  kernel              the kernel's mmap
  kernel-random       the kernel's mmap with MADV_RANDOM
  kernel-sequential   the kernel's mmap with MADV_SEQUENTIAL
  kernel-hugepage     the kernel's mmap with MADV_HUGEPAGE, by which it reads files into large folios
  kernel-parked       hugetlb: the kernel's mmap, with a second mapping in each process that keeps the page tables
                      when the first is unmapped, as in softfault
  pread               O_DIRECT reads by the same number of threads, one for each touch, without a cache
  pread-cached        thrash: pread through a cache in the process, as large as the budget
  direct              anon, write: O_DIRECT reads and writes of one page, by the same number of threads, without memory
                      (a file is overwritten by the MiB)
  softfault           this project's engine
  soft                all but write and snapshot: the same engine over page tables of its own. Pages are reached by calls, and no
                      fault is the kernel's
  softfault:POLICIES  softfault with policies other than the default, as in softfault:retry=mmap-lock+pin=no; soft:POLICIES likewise
Policies, the default first:
  lock=refcount|rwsem|biased       the kind of the VMA lock
  reuse=typesafe|rcu               whether the slot of an unmapped VMA is reused at once, or after a grace period
  mmap=steal|phase-fair|linux      the order in which readers and writers get mmap_lock
  verbs=alone|shared               whether maps and unmaps of whole anonymous mappings share mmap_lock; shared needs
                                   lock=refcount and reuse=typesafe, and is alone with others
  retry=vma-lock|mmap-lock|held    the lock under which a fault retries after I/O
  pin=yes|no                       whether the fault pins the page during its I/O wait
  miss=adaptive|baseline|p1|p2|both  the accesses that read-ahead counts as hits; p1, p2: by one patch of the series
  share=vma-lock|document|i-mmap-rwsem  hugetlb on soft: the lock that keeps a shared page table during a fault
  around=yes|no                    hugetlb on soft: whether a fault also maps the page's neighbours that the file has
  join=leaf|fault-mutex            hugetlb on soft: the lock of a fault that finds its page in a shared page table
  left=kept|freed                  hugetlb on soft: whether a page table is kept or freed after its last mapping
  fill=run|page                    whether a first touch of anonymous memory also fills the pages after it
  map=copy|move                    whether pages read in order are copied to the map, or their memory is moved there
  reads=direct|cached|auto         softfault: whether files are read past the page cache, through it, or as in programs; cached and
                                   auto have --memory and 32 MiB, page cache included, where there is a cgroup
Read-ahead:
  kernel:read_ahead_kb=N  kernel with the read-ahead of its file's device set to N KiB; kernel-random and
  kernel-sequential and kernel-hugepage take it too. --read-ahead-kb 128,8192 runs all but kernel-random once with each value
Swap:
  anon, swap-retry and snapshot touch anonymous memory four times as large as the budget. softfault has a swap file in
  --dir; as root, kernel also gets a swap file there, and a memory cgroup as large as the budget. Pages are populated
  first, which is not counted. Every read is checked, and all pages are checked again at the end.";

/// Arguments of `lab run`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct RunArgs {
    /// The workload
    pub workload: Workload,
    /// Engines to run the workload on (see below); ratios are relative to the first
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "kernel,softfault"
    )]
    pub on: Vec<On>,
    /// Read-ahead settings (KiB) of the file's device: run kernel, kernel-sequential and kernel-hugepage once at each of
    /// them. This needs root; the setting is restored after each row. kernel-random does no read-ahead at any setting
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = parse_read_ahead
    )]
    pub read_ahead_kb: Vec<u32>,
    /// The file to read; its data is checked if `lab make` made the file
    #[arg(long, value_name = "PATH", conflicts_with = "file_size")]
    pub file: Option<PathBuf>,
    /// Length of the file to make, or of the mapped memory [default: 4G; thrash: 16M for each thread;
    /// warm-start, write, orders, anon, swap-retry and snapshot: four times --memory in all; pft: 64M for each thread; spf: 64K;
    /// loops: 16K;
    /// hugetlb: the free part of the pool, up to 1G]
    #[arg(long, visible_alias = "size", value_name = "SIZE", value_parser = size::parse)]
    pub file_size: Option<u64>,
    /// The directory for files that the command makes; they have no name, and are gone when it ends
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// The memory budget: softfault's budget, and the cgroup limit of the kernel's runs
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    pub memory: u64,
    /// Number of threads; each number of a list is a row [default: sparse, many, orders and scan 1, random and write 32, thrash 500,
    /// warm-start and storm 16, spf and anon 8, pft 1,2,4, loops 1,2, swap-retry 32, snapshot 4]; for hugetlb, of processes [default: 2]
    #[arg(
        long,
        visible_alias = "processes",
        value_name = "LIST",
        value_delimiter = ','
    )]
    pub threads: Vec<usize>,
    /// Duration of timed workloads, in seconds; for snapshot, the time before the fork [default: 10, thrash 20, loops 2, pft, spf,
    /// hugetlb and snapshot 5; warm-start and swap-retry end when their work is done]. Only --timeout goes by it in sparse, many, orders,
    /// scan, and write in order: they end with the file
    #[arg(long, value_name = "N")]
    pub seconds: Option<f64>,
    /// Share of the file's pages that sparse touches, in percent [default: 1]
    #[arg(long, value_name = "PERCENT")]
    pub touch: Option<f64>,
    /// Access patterns. sparse: random, sequential, strideN [default: random,stride1021,stride2053,stride4099,sequential];
    /// many: cold, present [default: both]; orders: 0213, shuffleN, reverseN, anywhereN, gapsNofM, streamsN and backwards, with +
    /// between, and drawnN [default: twelve of them]; write: sequential, append, random, zipf [default: all
    /// but append]; scan: cold, warm, remap [default: all]; pft: own, shared [default: both]; loops: mmap, mmap-touch,
    /// unmap-untouched, unmap, touch [default: these], unmap-untouched-contended, unmap-contended, touch-contended; anon: uniform, zipf [default:
    /// both]; swap-retry and snapshot: the same [default: uniform]; hugetlb: the state of the file at the start: empty,
    /// emptied (before each round), populated, and scan, which reads a populated file [default: empty,populated]
    #[arg(
        long,
        visible_alias = "start",
        value_name = "LIST",
        value_delimiter = ','
    )]
    pub pattern: Vec<String>,
    /// Contents of thrash's files [default: data]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub files: Vec<Files>,
    /// write: flush after each so many pages, besides the flush at the end
    #[arg(long, value_name = "PAGES")]
    pub flush_every: Option<u64>,
    /// Skew of zipf, above 0 and below 1 [default: 0.99]
    #[arg(long, value_name = "N")]
    pub theta: Option<f64>,
    /// Share of the accesses that write, in percent [default: anon 50, swap-retry 10, snapshot 100]
    #[arg(long, value_name = "PERCENT")]
    pub writes: Option<u64>,
    /// Number of runs of each row
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repeat: u32,
    /// Seed of the data and of random orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Kill a run that has not ended after so many seconds [default: three times --seconds, or 120; workloads that
    /// populate memory first get one more second for each 8M]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,
    /// Write all single runs as a JSON array to this file; `-` is stdout (the table then goes to stderr)
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Before a run, drop only the file's own pages from the page cache, and keep the system's other caches
    #[arg(long)]
    pub keep_system_caches: bool,
}

/// Arguments of `lab make`.
#[derive(Args, Debug)]
pub struct MakeArgs {
    /// The file to make; it must not exist yet
    pub path: PathBuf,
    /// Length of the file
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size::parse)]
    pub file_size: u64,
    /// Seed of the file's data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}
