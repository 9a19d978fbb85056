//! One run's order, as the parent writes it to its child's stdin.

use super::family::Family;
use super::fill::{Contents, PAGE};
use super::memory::accesses::{Accesses, Spread};
use crate::results::on::On;
use serde::{Deserialize, Serialize};
use softfault_sim::Verb;
use std::path::PathBuf;

/// Order of a sparse walk's accesses. Over `pages` pages, access i goes to page ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// ... hash of i and the seed: the same for every engine.
    Random,
    /// ... (i × stride) mod pages; sequential is stride 1.
    Stride(u64),
}

/// Which pass of a scan is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pass {
    /// The first.
    Cold,
    /// The second, over the same mapping.
    Warm,
    /// One over a fresh mapping after a first one was unmapped; mapping and unmapping included.
    Remap,
}

/// The work of a child.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Only builds the engine: whether the budget is enough, and the machine allows it.
    Probe,
    /// Touches `accesses` pages of a file.
    Sparse {
        /// In this order.
        order: Order,
        /// So many.
        accesses: u64,
    },
    /// Touches uniformly random pages until the time is over.
    Random,
    /// Brings scattered pages in by one call.
    Many {
        /// They were brought in before.
        present: bool,
    },
    /// Touches pages of a file once each.
    Orders(Family),
    /// Reads a whole file.
    Scan(Pass),
    /// Threads write to a file through a map.
    Write {
        /// The pages that they write.
        how: Writing,
        /// A flush each so many pages.
        flush_every: Option<u64>,
    },
    /// Threads write to a file through a map, in order, and both become longer as they go.
    Append {
        /// A flush each so many pages.
        flush_every: Option<u64>,
    },
    /// Each thread maps its own file, touches all of it and unmaps, until the time is over.
    Thrash,
    /// Threads of low priority map, touch and unmap the files, beside one of high priority and one that
    /// forks.
    WarmStart {
        /// So many times in all; without, until the time is over.
        rounds: Option<u64>,
    },
    /// Threads populate anonymous memory until the time is over.
    Pft {
        /// One mapping for all, or one each.
        shared: bool,
        /// Bytes for each thread.
        bytes: u64,
    },
    /// Threads map anonymous memory, touch a few pages and unmap, until the time is over.
    Spf {
        /// Bytes of each mapping.
        bytes: u64,
    },
    /// Threads do one verb on regions, until the time is over.
    Loops {
        /// The verb.
        verb: Verb,
        /// On regions that lie between those of other threads.
        contended: bool,
        /// Bytes of a region.
        bytes: u64,
    },
    /// One thread maps and unmaps the second file, the others touch random pages of the first, until the
    /// time is over.
    Storm,
    /// Threads read and write pages of anonymous memory that is larger than the budget, until the time is
    /// over.
    Anon(Memory),
    /// Threads of low priority touch runs of such memory, beside one that maps and unmaps and one that forks.
    SwapRetry {
        /// Which memory.
        memory: Memory,
        /// So many times in all; without, until the time is over.
        rounds: Option<u64>,
    },
    /// Threads write such memory, the process forks, and the child reads all of it.
    Snapshot(Memory),
    /// Processes map one huge file, fault in all of it and unmap, until the time is over.
    Hugetlb {
        /// Its length.
        bytes: u64,
        /// Its state when they begin.
        start: Start,
    },
}

/// The writes of threads to a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Writing {
    /// Every byte of it, in order.
    Over,
    /// A word of each page that is drawn, which they read before, until the time is over.
    Words(Spread),
}

/// The state of a huge file when its processes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// Empty.
    Empty,
    /// Empty, and emptied before each round.
    Emptied,
    /// All of its pages are there.
    Populated,
    /// The same, and every byte is read.
    Scan,
}

/// Anonymous memory, and how it is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Its length.
    pub bytes: u64,
    /// Which pages.
    pub spread: Spread,
    /// Percent of the accesses that write.
    pub writes: u64,
}

/// Pages that a round of swap-retry touches.
pub const ROUND_PAGES: u64 = 32;

impl Memory {
    /// Its pages.
    pub fn pages(&self) -> u64 {
        self.bytes / PAGE
    }

    /// The accesses to it.
    pub fn accesses(&self, seed: u64) -> Accesses {
        Accesses::new(seed, self.pages(), self.writes, self.spread)
    }
}

/// Where pages go that memory has no room for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Swap {
    /// The directory of its file.
    pub dir: PathBuf,
    /// Its length.
    pub bytes: u64,
}

impl Work {
    /// Threads beside the workers: the last ones by number.
    pub fn bystanders(self) -> usize {
        match self {
            Self::WarmStart { .. } | Self::SwapRetry { .. } => 2,
            Self::Storm | Self::Snapshot(_) => 1,
            _ => 0,
        }
    }
}

/// A file that the child inherits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct JobFile {
    /// Its descriptor.
    pub fd: i32,
    /// Its length.
    pub bytes: u64,
    /// Its contents.
    pub contents: Contents,
}

/// All that a child has to know. Immutable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The parent's process id: a child whose parent is another one by now gives up at once.
    pub parent: u32,
    /// Descriptor of the shared counters.
    pub counters: i32,
    /// The work to do.
    pub work: Work,
    /// The engine.
    pub on: On,
    /// The engine's budget in bytes.
    pub memory: u64,
    /// By how many workers; bystanders are not among them.
    pub threads: usize,
    /// For how long, where the work has no end of its own.
    pub seconds: f64,
    /// Seed of random orders.
    pub seed: u64,
    /// One file, one for each thread of a thrash, a warm start's many, a storm's large and small one; none
    /// where the memory is anonymous.
    pub files: Vec<JobFile>,
    /// Where pages go that memory has no room for; none where all must stay.
    pub swap: Option<Swap>,
}

impl Job {
    /// All threads that count.
    pub fn all_threads(&self) -> usize {
        self.threads + self.work.bystanders()
    }
}
