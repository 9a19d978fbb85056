//! The further fields of a simulation's row.

use serde::{Deserialize, Serialize};

/// All times are virtual but for `wall_s` and `host_cpu_s`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Simulated {
    /// The policies; `default` if all are.
    pub policy: String,
    /// The machine.
    pub topology: String,
    /// How far off that its costs may be, in percent.
    pub varied_percent: f64,
    /// The one cost of it that is another than the machine's, and how many times as high; null if none is.
    #[serde(default)]
    pub changed_cost: Option<(String, f64)>,
    /// CPUs.
    pub cores: usize,
    /// Whose page tables.
    pub mmu: String,
    /// pft: whether all threads share one mapping.
    pub shared: bool,
    /// Touches that failed on bad pages of the disk.
    pub failed_accesses: u64,
    /// Of the faults that dropped their lock, the share that came back in vain, in percent; null without any.
    pub miss_drop_percent: Option<f64>,
    /// Faults that waited for memory.
    pub memory_waits: u64,
    /// Reads that the disk failed.
    pub read_errors: u64,
    /// Mapped pages that reclaim took.
    pub evicted: u64,
    /// Slots of VMAs that were ever made: for the most VMAs at a time, and those that waited for a grace period.
    #[serde(default)]
    pub vma_slots: u64,
    /// How many times one was another VMA's again.
    #[serde(default)]
    pub vma_reuses: u64,
    /// The most that waited for a grace period at a time.
    #[serde(default)]
    pub vma_slots_waiting: u64,
    /// Virtual time of the whole run, start and end included.
    pub virtual_s: f64,
    /// Operations of the facade in the whole run.
    pub operations: u64,
    /// Switches between simulated threads.
    pub switches: u64,
    /// Of all that happened, in hexadecimal: the same for the same run.
    pub digest: String,
    /// Wall clock.
    pub wall_s: f64,
    /// Processor time of the simulating thread.
    pub host_cpu_s: f64,
    /// Facade operations a second of wall clock.
    pub operations_per_wall_s: f64,
}
