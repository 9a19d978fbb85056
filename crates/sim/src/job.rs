//! The run to simulate.

use serde::{Deserialize, Serialize};
use softfault_engine::policy::Policies;
use std::fmt;
use std::str::FromStr;
use sync::topology::Topology;

/// Bytes of a page, as a `u64`.
pub(crate) const PAGE: u64 = softfault_engine::PAGE_SIZE as u64;

/// The work of the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Document 004: threads populate anonymous memory.
    Pft,
    /// Document 000: more files than memory holds are mapped, touched, unmapped.
    Thrash,
    /// Document 002: the start of an application on few cores.
    WarmStart,
    /// Threads map a little anonymous memory, touch it and unmap it.
    Spf,
    /// Threads do one verb on regions of 16 KiB, which are mapped, unmapped or touched beside what is measured.
    Loops,
    /// Threads touch a file while others map and unmap in the same space.
    Storm,
    /// Document 002's swap side: threads fault on swapped pages while others
    /// map, unmap and fork.
    SwapRetry,
    /// Threads read and write anonymous memory that is larger than memory.
    Anon,
    /// Document 001: spaces map one file of huge pages, touch all of it and unmap.
    Hugetlb,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Pft,
        Self::Thrash,
        Self::WarmStart,
        Self::Spf,
        Self::Loops,
        Self::Storm,
        Self::SwapRetry,
        Self::Anon,
        Self::Hugetlb,
    ];

    /// As it is called on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pft => "pft",
            Self::Thrash => "thrash",
            Self::WarmStart => "warm-start",
            Self::Spf => "spf",
            Self::Loops => "loops",
            Self::Storm => "storm",
            Self::SwapRetry => "swap-retry",
            Self::Anon => "anon",
            Self::Hugetlb => "hugetlb",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The verb of loops, of the lab too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verb {
    /// Regions are mapped.
    Map,
    /// They are mapped, and each page of them is touched.
    MapAndTouch,
    /// Regions that nobody touched are unmapped.
    UnmapUntouched,
    /// Regions whose pages are all there are unmapped.
    Unmap,
    /// Each page of mapped regions is touched.
    Touch,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Map,
        Self::MapAndTouch,
        Self::UnmapUntouched,
        Self::Unmap,
        Self::Touch,
    ];

    /// As it is called on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "mmap",
            Self::MapAndTouch => "mmap-touch",
            Self::UnmapUntouched => "unmap-untouched",
            Self::Unmap => "unmap",
            Self::Touch => "touch",
        }
    }

    /// Whether regions are mapped in what is measured.
    pub(crate) const fn maps(self) -> bool {
        matches!(self, Self::Map | Self::MapAndTouch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Verb {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("a loop is one of {names}, not `{text}`")
        })
    }
}

/// Whose page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MmuKind {
    /// The engine's own, in memory.
    #[default]
    Soft,
    /// The kernel's through userfaultfd: the same tables, and the cost of the kernel
    /// beneath.
    Uffd,
}

impl MmuKind {
    /// As it is called on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Uffd => "uffd",
        }
    }
}

impl fmt::Display for MmuKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MmuKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "soft" => Ok(Self::Soft),
            "uffd" => Ok(Self::Uffd),
            _ => Err(format!("page tables are soft or uffd, not `{text}`")),
        }
    }
}

/// One run; `Job::new` has the sizes that a workload has by default.
#[derive(Debug, Clone)]
pub struct Job {
    /// The work of the threads.
    pub workload: Workload,
    /// The engine's policies.
    pub policies: Policies,
    /// The machine.
    pub topology: Topology,
    /// CPUs of it that are used, 1 and up.
    pub cores: usize,
    /// Worker threads, 1 and up; warm-start and swap-retry have two threads more.
    pub threads: usize,
    /// Decides which files and pages are taken, which of the disk's pages are
    /// bad, and all else that is drawn.
    pub seed: u64,
    /// Whose page tables.
    pub mmu: MmuKind,
    /// pft: one mapping for all threads.
    pub shared: bool,
    /// loops: the verb.
    pub verb: Verb,
    /// loops: the regions are parts of one mapping, which threads take in turn.
    pub contended: bool,
    /// The engine's budget in bytes.
    pub memory: u64,
    /// Bytes of a mapping: of the one that a thread populates in pft, that it maps in spf and loops, and that
    /// all threads share in swap-retry and anon.
    pub region: u64,
    /// warm-start, swap-retry: whether one thread forks.
    pub forks: bool,
    /// Bytes of swap; 0: none.
    pub swap: u64,
    /// anon: pages are drawn by Zipf's law with this theta, above 0 and below 1; 0:
    /// all alike.
    pub theta: f64,
    /// Bytes of a file: of each in thrash, of the large one in storm, of that of huge
    /// pages in hugetlb.
    pub file: u64,
    /// hugetlb: the file has all of its pages before the clock starts.
    pub populated: bool,
    /// hugetlb: all threads begin at once, not spread over the length of a round.
    pub together: bool,
    /// Files are holes: a read takes no time of the disk, and the processor's for
    /// filling the pages instead. Linux's page cache reads a hole as anything
    /// else, and so does the engine here.
    pub holes: bool,
    /// Files of warm-start. The other workloads have as many as they need.
    pub files: usize,
    /// storm: how many of the threads map and unmap.
    pub mappers: usize,
    /// Pages of a window of read-ahead, where that is as Linux has it: with
    /// `miss_accounting` policies other than the default. Linux's own default
    /// is 32, 128 KiB.
    pub ra_pages: u32,
    /// Virtual seconds from the moment when all threads are ready.
    pub seconds: f64,
    /// How many of a million pages of the disk cannot be read.
    pub io_errors_per_million: u32,
    /// Virtual seconds that a thread may wait before the run counts as stuck.
    pub patience: f64,
    /// Keep the trace of all operations in the report. It is large.
    pub trace: bool,
}

impl Job {
    /// Virtual nanoseconds of the measured part.
    pub(crate) fn duration_ns(&self) -> u64 {
        (self.seconds * 1e9) as u64
    }
}

/// How far a run has got.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Virtual nanoseconds since all threads were ready.
    pub virtual_ns: u64,
    /// Virtual nanoseconds after which the run is over.
    pub of_ns: u64,
}

impl Progress {
    /// From 0 to 1.
    pub fn fraction(&self) -> f64 {
        (self.virtual_ns as f64 / self.of_ns.max(1) as f64).min(1.0)
    }
}
