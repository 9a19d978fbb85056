//! One run's order, as the parent writes it to its child's stdin.

use super::files::Contents;
use super::on::On;
use serde::{Deserialize, Serialize};

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

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Reads a whole file.
    Scan(Pass),
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
    /// One thread maps and unmaps the second file, the others touch random pages of the first, until the
    /// time is over.
    Storm,
}

impl Work {
    /// Threads beside the workers: the last ones by number.
    pub fn bystanders(self) -> usize {
        match self {
            Self::WarmStart { .. } => 2,
            Self::Storm => 1,
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
    /// What it holds.
    pub contents: Contents,
}

/// All that a child has to know. Immutable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The parent's process id: a child whose parent is another one by now gives up at once.
    pub parent: u32,
    /// Descriptor of the shared counters.
    pub counters: i32,
    /// What to do.
    pub work: Work,
    /// On what.
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
}

impl Job {
    /// All threads that count.
    pub fn all_threads(&self) -> usize {
        self.threads + self.work.bystanders()
    }
}
