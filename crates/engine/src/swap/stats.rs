//! Statistics of swap.

use sync::stat::Counter;

/// Counters of a swap. All are statistics and order nothing.
#[derive(Debug, Default)]
pub struct SwapStats {
    /// Pages written.
    pub pages_out: Counter,
    /// Pages that were mapped from swap, by a touch or around one.
    pub pages_in: Counter,
    /// Pages dropped without a write, since swap or a file still has them, or they
    /// are zeros.
    pub clean_drops: Counter,
    /// Writes that found their page protected: clean, or beside an evicted page.
    pub write_faults: Counter,
    /// Pages that somebody waited for while they were written, and which stayed.
    pub rescued: Counter,
    /// Writes that failed.
    pub write_errors: Counter,
    /// Times no slot was free for a page that was to go.
    pub full: Counter,
    /// As [`NodeStats::retry_mmap_drop`](crate::stats::NodeStats::retry_mmap_drop),
    /// of anonymous memory.
    pub retry_mmap_drop: Counter,
    /// As [`NodeStats::retry_io_miss`](crate::stats::NodeStats::retry_io_miss), of
    /// anonymous memory.
    pub retry_io_miss: Counter,
}
