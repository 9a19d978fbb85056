//! The lines of document 001, of a row about huge pages.

use serde::{Deserialize, Serialize};

/// The measuring command decides which fields it has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Huge {
    /// By the lab.
    Measured(MeasuredHuge),
    /// By a simulation.
    Simulated(SimulatedHuge),
    /// By something that is not known here.
    Other(serde_json::Value),
}

/// The figures of the lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredHuge {
    /// The kind of the memory.
    pub made_of: String,
    /// Touches that slept: for a lock, or for the page.
    pub waits: u64,
    /// How long these took in all.
    pub wait_total_us: f64,
    /// The longest.
    pub wait_max_us: f64,
    /// Faults that the engine itself served: pages missing in the file.
    pub served: u64,
    /// Faults by the kernel's count. A page that another process has mapped in a page table which both have is none.
    pub minor_faults: u64,
}

/// The counts of a simulation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SimulatedHuge {
    /// Locks that were found taken.
    pub waits: u64,
    /// All waits, in milliseconds.
    pub wait_total_ms: f64,
    /// Faults that took their fault mutex.
    #[serde(default)]
    pub mutex_locked: u64,
    /// Of the waits, those for a fault mutex.
    #[serde(default)]
    pub mutex_waits: u64,
    /// These, in milliseconds.
    #[serde(default)]
    pub mutex_wait_total_ms: f64,
    /// The longest of one fault, in microseconds.
    pub longest_wait_us: f64,
    /// Pages taken from the pool.
    pub filled: u64,
    /// Leaf tables that spaces began to share.
    pub shared: u64,
    /// Those that they dropped.
    pub unshared: u64,
    /// Most bytes of tables when a round had touched all.
    pub table_bytes: u64,
}
