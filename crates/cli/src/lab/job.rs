//! One run's order, as the parent writes it to its child's stdin.

use super::engine::On;
use super::files::Contents;
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
    /// By how many threads.
    pub threads: usize,
    /// For how long, where the work has no end of its own.
    pub seconds: f64,
    /// Seed of random orders.
    pub seed: u64,
    /// One file, or one for each thread of a thrash.
    pub files: Vec<JobFile>,
}
