//! The workloads: their names, their properties, and their defaults.

use crate::lab::huge_pool;
use crate::results::row;
use clap::ValueEnum;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Touch 1 % of a file's pages in one of several orders, each once; random draws them, some of them twice.
    Sparse,
    /// Touch uniformly random pages for a given time.
    Random,
    /// Bring in 4,096 scattered pages of a file by one call, cold or present. The kernel's maps use
    /// process_madvise(2) with MADV_WILLNEED and MADV_POPULATE_READ, 1,024 pages a call; pread uses 32 threads.
    Many,
    /// Touch each page of a file once, in an order that programs use: shuffled, backwards, with gaps.
    Orders,
    /// Read the whole file: cold, warm (second pass) and remapped.
    Scan,
    /// Write to a file through a map. Either overwrite the whole file in order, or append to a file of 1 MiB that grows by a MiB
    /// each time the threads reach its end, or write a word to random pages for a given time. The last flush counts in the
    /// time, and the file is checked afterwards.
    Write,
    /// Each thread maps its own file, touches every page and unmaps, for a given time.
    Thrash,
    /// The start of an application: background threads map, touch and unmap many files of mixed size, while
    /// a thread of high priority does the same and another thread forks.
    WarmStart,
    /// Page fault test: threads populate anonymous memory, one mapping each or one for all, for a given time.
    Pft,
    /// Threads map a little anonymous memory, touch some of it and unmap, for a given time.
    Spf,
    /// Threads do one verb on regions of 16 KiB, for a given time: mmap, mmap and touch, unmap of untouched and of touched
    /// regions, touch.
    Loops,
    /// One thread maps and unmaps a small file all the time; the others touch random pages of a large file.
    Storm,
    /// Threads read and write random pages of anonymous memory larger than the budget, for a given time.
    Anon,
    /// The swap part of document 002: background threads touch anonymous memory larger than the budget, while one thread
    /// maps and unmaps and one thread forks.
    SwapRetry,
    /// Threads write anonymous memory larger than the budget, the process forks, and the child reads all of it as it was
    /// at the fork.
    Snapshot,
    /// Document 001: processes map one file of huge pages, fault in all of it and unmap, for a given time.
    Hugetlb,
}

/// The defaults of a workload.
pub struct Defaults {
    /// Each a row.
    pub threads: &'static [usize],
    /// Length of a run that ends with its time.
    pub seconds: f64,
    /// Whether it ends with its time unless told otherwise.
    pub timed: bool,
    /// `--file-size`.
    pub file_bytes: u64,
}

impl Workload {
    /// The name in arguments, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sparse => "sparse",
            Self::Random => "random",
            Self::Many => "many",
            Self::Orders => "orders",
            Self::Scan => "scan",
            Self::Write => "write",
            Self::Thrash => "thrash",
            Self::WarmStart => "warm-start",
            Self::Pft => "pft",
            Self::Spf => "spf",
            Self::Loops => "loops",
            Self::Storm => "storm",
            Self::Anon => "anon",
            Self::SwapRetry => "swap-retry",
            Self::Snapshot => "snapshot",
            Self::Hugetlb => "hugetlb",
        }
    }

    /// Whether its speed is told in rounds.
    pub fn has_rounds(self) -> bool {
        matches!(
            self,
            Self::Thrash | Self::WarmStart | Self::SwapRetry | Self::Loops
        )
    }

    /// Whether every page that it touches is a fault.
    pub fn has_faults(self) -> bool {
        self.is_anonymous() && self != Self::Loops
    }

    /// Whether its speed is told in mappings too.
    pub fn has_maps(self) -> bool {
        matches!(self, Self::Spf | Self::Storm)
    }

    /// Whether it reads no file, and all that it touches has room in memory.
    pub fn is_anonymous(self) -> bool {
        matches!(self, Self::Pft | Self::Spf | Self::Loops)
    }

    /// Whether it reads no file, and touches more than memory.
    pub fn swaps(self) -> bool {
        matches!(self, Self::Anon | Self::SwapRetry | Self::Snapshot)
    }

    /// Whether it reads files, through the page cache where its engine does.
    pub fn reads_files(self) -> bool {
        !self.is_anonymous() && !self.swaps() && self != Self::Hugetlb
    }

    /// Bytes of swap that are enough for `bytes` bytes of memory, with a quarter to spare, since pages that are back
    /// in memory may keep their slots: a page that is written after a fork is there twice.
    pub fn swap_bytes(self, bytes: u64) -> u64 {
        let with_spare = bytes.saturating_add(bytes / 4);
        match self {
            Self::Snapshot => with_spare.saturating_mul(2),
            _ => with_spare,
        }
    }

    /// Percent of the accesses that write.
    pub fn writes(self) -> u64 {
        row::usual_writes(self.name())
    }

    /// Its defaults with a budget of `memory` bytes.
    pub fn defaults(self, memory: u64) -> Defaults {
        let (threads, seconds, timed, file_bytes): (&[usize], _, _, _) = match self {
            Self::Sparse | Self::Scan | Self::Many => (&[1], 10.0, false, 4 << 30),
            Self::Orders => (&[1], 10.0, false, memory.saturating_mul(4)),
            Self::Random => (&[32], 10.0, true, 4 << 30),
            Self::Write => (&[32], 10.0, true, memory.saturating_mul(4)),
            Self::Thrash => (&[500], 20.0, true, 16 << 20),
            Self::WarmStart => (&[16], 10.0, false, memory.saturating_mul(4)),
            Self::Pft => (&[1, 2, 4], 5.0, true, 64 << 20),
            Self::Spf => (&[8], 5.0, true, 64 << 10),
            Self::Loops => (&[1, 2], 2.0, true, 16 << 10),
            Self::Storm => (&[16], 10.0, true, 4 << 30),
            Self::Anon => (&[8], 10.0, true, memory.saturating_mul(4)),
            Self::SwapRetry => (&[32], 10.0, false, memory.saturating_mul(4)),
            Self::Snapshot => (&[4], 5.0, false, memory.saturating_mul(4)),
            Self::Hugetlb => (&[2], 5.0, true, huge_pool::default_bytes()),
        };
        Defaults {
            threads,
            seconds,
            timed,
            file_bytes,
        }
    }
}

/// Contents of thrash's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Files {
    /// Random data on the disk.
    Data,
    /// Holes: no reads, only faults.
    Holes,
}
