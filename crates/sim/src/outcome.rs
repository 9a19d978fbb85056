//! The result of a run.

use softfault_engine::lock::WaitSnapshot;
use softfault_engine::mm::VmaSlots;
use std::fmt;

use crate::world::Report;

/// How a lock was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// With other readers.
    Read,
    /// Alone.
    Write,
}

impl Mode {
    /// As results have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often a lock was taken in one mode, and waited for. Of the measured
/// part, but for the longest wait, which is the whole run's.
#[derive(Debug, Clone, Copy)]
pub struct LockRow {
    /// `mmap_lock`, `vma_lock`, and with the kernel's page tables
    /// `kernel mmap_lock` and `kernel signal`.
    pub name: &'static str,
    /// How it was taken.
    pub mode: Mode,
    /// How often and how long.
    pub waits: WaitSnapshot,
}

/// The longest single operations in virtual nanoseconds, 0 where there was
/// none or it was not timed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Longest {
    /// A touch of a page.
    pub touch_ns: u64,
    /// A touch by warm-start's thread of normal priority.
    pub priority_touch_ns: u64,
    /// Mapping.
    pub map_ns: u64,
    /// Unmapping.
    pub unmap_ns: u64,
    /// fork.
    pub fork_ns: u64,
}

impl Longest {
    /// The longer of each.
    pub(crate) fn or_longer(self, other: Self) -> Self {
        Self {
            touch_ns: self.touch_ns.max(other.touch_ns),
            priority_touch_ns: self.priority_touch_ns.max(other.priority_touch_ns),
            map_ns: self.map_ns.max(other.map_ns),
            unmap_ns: self.unmap_ns.max(other.unmap_ns),
            fork_ns: self.fork_ns.max(other.fork_ns),
        }
    }
}

/// Traffic between memory and swap in the measured part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwapCounts {
    /// Pages written.
    pub pages_out: u64,
    /// Pages mapped again, by a touch or around one.
    pub pages_in: u64,
    /// Pages dropped that swap still had.
    pub clean_drops: u64,
    /// Pages that stayed because somebody waited for them.
    pub rescued: u64,
    /// Times no slot was free.
    pub full: u64,
}

/// Faults on huge pages in the measured part, in document 001's lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HugeCounts {
    /// Locks that a fault found taken, and waited for.
    pub waits: u64,
    /// How long faults waited, all together.
    pub wait_ns: u64,
    /// Faults that took their fault mutex.
    pub locked: u64,
    /// Of the waits, those for a fault mutex.
    pub mutex_waits: u64,
    /// How long these took.
    pub mutex_wait_ns: u64,
    /// The longest that one waited; of the whole run.
    pub longest_ns: u64,
    /// Pages that faults took from the pool.
    pub filled: u64,
    /// Times that a space began to share a leaf table which another one had.
    pub shared: u64,
    /// Times that a space dropped one which it shared.
    pub unshared: u64,
    /// Most bytes of tables when a round had touched all.
    pub table_bytes: u64,
}

/// The result of a run. All times are virtual.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Faults in the measured part: in pft and spf pages populated, in the
    /// others the faults that the engine served.
    pub faults: u64,
    /// Nanoseconds of the measured part; in pft of the populations alone, in loops of the verb.
    pub elapsed_ns: u64,
    /// Processor time of the worker threads in that time, in nanoseconds.
    pub cpu_ns: u64,
    /// Rounds that were finished: a mapping, its touches and its unmapping. In loops regions.
    pub rounds: u64,
    /// Pages touched, faults or not.
    pub touches: u64,
    /// Touches that failed: only where the disk has bad pages.
    pub failed_touches: u64,
    /// Times a fault dropped its lock to wait for I/O (document 000).
    pub retry_mmap_drop: u64,
    /// Retries that found the folio gone again (document 000).
    pub retry_io_miss: u64,
    /// Times a fault waited for memory.
    pub memory_waits: u64,
    /// Bytes that the disk delivered.
    pub bytes_read: u64,
    /// Reads that the disk failed, those ahead included.
    pub read_errors: u64,
    /// Mapped pages that reclaim took out.
    pub evicted: u64,
    /// Between memory and swap; `None` without swap.
    pub swap: Option<SwapCounts>,
    /// Of huge pages; `None` in other workloads.
    pub huge: Option<HugeCounts>,
    /// Slots of VMAs, of all spaces and the whole run.
    pub vma_slots: VmaSlots,
    /// The locks.
    pub locks: Vec<LockRow>,
    /// The longest single operations.
    pub longest: Longest,
    /// The counts of the machine, start and end of the run included.
    pub report: Report,
}

impl Outcome {
    /// Faults a second of the measured part.
    pub fn faults_per_s(&self) -> f64 {
        rate(self.faults, self.elapsed_ns)
    }

    /// Faults a second of processor time, as mmtests has it.
    pub fn faults_per_cpu(&self) -> f64 {
        rate(self.faults, self.cpu_ns)
    }

    /// Touched pages a second.
    pub fn touches_per_s(&self) -> f64 {
        rate(self.touches, self.elapsed_ns)
    }

    /// Rounds a second.
    pub fn rounds_per_s(&self) -> f64 {
        rate(self.rounds, self.elapsed_ns)
    }

    /// Of the retries, the share that found nothing, in percent: document 000's
    /// Miss/Drop. `None` without retries.
    pub fn miss_drop_percent(&self) -> Option<f64> {
        let (miss, drop) = (self.retry_io_miss as f64, self.retry_mmap_drop as f64);
        (drop > 0.0).then(|| 100.0 * miss / drop)
    }
}

fn rate(count: u64, ns: u64) -> f64 {
    match ns {
        0 => 0.0,
        ns => count as f64 * 1e9 / ns as f64,
    }
}

/// Why there is no result.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// The job cannot be run.
    Job(String),
    /// The caller ended it.
    Interrupted,
    /// A thread of the workload failed.
    Failed(String),
    /// Deadlock, or a thread that waited longer than the patience: the
    /// waits.
    Stuck(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(why) => write!(f, "cannot simulate that: {why}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Failed(why) => f.write_str(why),
            Self::Stuck(waits) => f.write_str(waits),
        }
    }
}

impl std::error::Error for Trouble {}
