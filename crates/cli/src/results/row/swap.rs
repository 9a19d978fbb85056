//! An engine's counts of its swap.

use serde::{Deserialize, Serialize};

/// Pages that went to swap and came back, and their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Swap {
    /// Pages written.
    pub pages_out: u64,
    /// Pages mapped from swap, by a touch or around one.
    pub pages_in: u64,
    /// Pages dropped without a write.
    pub clean_drops: u64,
    /// Pages that stayed, since somebody waited for them.
    pub rescued: u64,
    /// Times no slot was free.
    pub full: u64,
    /// Writes that failed; this and the next ones are reported by the lab alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_errors: Option<u64>,
    /// Swap-ins that let their lock go to wait for I/O.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_mmap_drop: Option<u64>,
    /// Of those, the ones that came back and found the folio gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_io_miss: Option<u64>,
}
