//! The statistics of a node: counters and wait histograms.

use crate::lock::WaitStats;
use sync::stat::Counter;

mod per_cpu;
pub use per_cpu::PerCpuCounter;

/// Counters of a node. All are statistics and order nothing.
#[derive(Debug, Default)]
pub struct NodeStats {
    /// Faults that found their page cached.
    pub minor_faults: PerCpuCounter,
    /// Faults that had to read.
    pub major_faults: Counter,
    /// Faults that found their page mapped already.
    pub spurious: Counter,
    /// Times a fault dropped its lock to wait for I/O (`RETRY_MMAP_DROP` of
    /// document 000). Policies that keep the lock do not count here.
    pub retry_mmap_drop: Counter,
    /// Retries that found the folio gone again which they had waited for until
    /// it was read (`RETRY_IO_MISS`).
    pub retry_io_miss: Counter,
    /// Times a fault waited for memory; or a fork between spaces, or a move to a longer window.
    pub memory_waits: Counter,
    /// Pages read ahead; not those that the program asked for (populate, pins, advice).
    pub readahead_pages: Counter,
    /// Pages of folios read ahead that were then touched, or were mapped with a touch near them (`fault/file/around.rs`, `sure`):
    /// whether such a page was touched itself is not known.
    pub readahead_used: PerCpuCounter,
    /// Pages read ahead and dropped untouched.
    pub readahead_dropped: Counter,
    /// Cached neighbours mapped with a fault, in pages.
    pub fault_around: Counter,
    /// Rows (2 MiB of a file, read ahead) whose memory was moved to the window.
    pub thp_moved: Counter,
    /// Rows that could not be, and were copied.
    pub thp_move_failed: Counter,
    /// Rows for which the system had no memory half-way: they were read again.
    pub thp_lost: Counter,
    /// Rows that were moved, and of which a part was evicted alone.
    pub thp_split: Counter,
    /// Pages of holes mapped.
    pub zero_pages: Counter,
    /// Pages of anonymous memory filled with zeros at their first touch.
    pub anonymous_faults: PerCpuCounter,
    /// Pages of anonymous memory filled with such a one, since touches ran on or small mappings before were written to there.
    pub filled_ahead: PerCpuCounter,
    /// Bytes read from stores.
    pub bytes_read: PerCpuCounter,
    /// Reads that failed.
    pub read_errors: Counter,
    /// Mapped pages evicted.
    pub evicted: Counter,
    /// Evicted pages that came back while remembered.
    pub refaults: PerCpuCounter,
    /// Pages of files written back.
    pub written_back: Counter,
    /// Pages that could not be, each time.
    pub write_errors: Counter,
    /// Batches of reclaim.
    pub reclaim_batches: Counter,
    /// Waits for a read by the thread that needs it.
    pub read_waits: WaitStats,
    /// Waits for a folio that another thread reads, maps or evicts.
    pub folio_waits: WaitStats,
}

impl NodeStats {
    /// All faults.
    pub fn faults(&self) -> u64 {
        let mapped = self.minor_faults.get() + self.major_faults.get();
        mapped + self.anonymous_faults.get() + self.spurious.get()
    }
}
