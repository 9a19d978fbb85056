//! A budget that nobody asked for follows the limits of the memory cgroups.
//!
//! An engine that is not told its budget takes a part of the cgroup's limit. When such a limit is lowered later,
//! a budget as large as before could end the process: an engine's memory is anonymous memory, which the
//! kernel cannot take back. So after every 16 MiB that were read, ten times a second at most, the limits are looked at
//! again, by the thread that watches memory; and the budget goes down, and up again to its first value. A
//! limit that goes below the process's use at that moment leaves no time for that.

use super::reads::ReadPolicy;
use super::room::now_ms;
use crate::machine;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::node::MIN_BYTES;
use softfault_engine::cache::{Node, NodeError};
use std::sync::{Mutex, PoisonError};

/// Bytes read, and time, between two looks.
const STEP: u64 = 16 << 20;
const PAUSE_MS: u64 = 100;

#[derive(Debug)]
pub(super) struct LimitFollower {
    /// Pages of the first budget; `None` if the program said one. Held while the budget changes.
    first: Mutex<Option<u64>>,
    /// Immutable. False: the program said one from the beginning.
    ever: bool,
    /// Bytes read since the last look. Relaxed, as the next: any value is some moment's.
    since: AtomicU64,
    looked_ms: AtomicU64,
}

impl LimitFollower {
    pub(super) fn new(first: Option<u64>) -> Self {
        Self {
            ever: first.is_some(),
            first: Mutex::new(first),
            since: AtomicU64::new(0),
            looked_ms: AtomicU64::new(0),
        }
    }

    /// So many bytes were read. True if it is time to look.
    pub(super) fn read(&self, bytes: u64) -> bool {
        if !self.ever || self.since.fetch_add(bytes, Relaxed) + bytes < STEP {
            return false;
        }
        self.since.store(0, Relaxed);
        let (now, before) = (now_ms(), self.looked_ms.load(Relaxed));
        let is_time = now.saturating_sub(before) >= PAUSE_MS;
        if is_time {
            self.looked_ms.store(now, Relaxed);
        }
        is_time
    }
}

impl ReadPolicy {
    /// True if the budget may follow.
    pub(crate) fn may_follow(&self) -> bool {
        self.follower.ever
    }

    /// Sets the budget as the program says: it follows nobody from then on.
    pub(crate) fn set_memory(&self, node: &Node, bytes: usize) -> Result<(), NodeError> {
        let mut first = self
            .follower
            .first
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        node.set_memory(bytes)?;
        *first = None;
        Ok(())
    }

    /// Sets the budget as the limits are now. Where it cannot be kept, it stays.
    pub(crate) fn follow(&self, node: &Node) {
        let first = self
            .follower
            .first
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(room)) = (*first, self.room()) else {
            return;
        };
        // A limit that was taken away limits nothing.
        let limit = room.limit().unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let due = machine::default_budget(limit.min(machine::memory_bytes()));
        let due = due.max(MIN_BYTES).min(first as usize * PAGE_SIZE);
        if due / PAGE_SIZE != node.budget.limit() as usize {
            let _ = node.set_memory(due);
        }
    }
}
