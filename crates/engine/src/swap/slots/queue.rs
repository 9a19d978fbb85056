//! Clusters that got better since somebody allocated: a stack that anybody pushes
//! to, and that is taken as a whole by who has the hand.

use super::table::Table;
use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Below the last.
const END: u32 = u32::MAX;

/// The queue. Links are in the clusters.
pub(super) struct Queue(AtomicU32);

impl Queue {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(END))
    }

    /// Puts a cluster on it; the caller has marked it as queued.
    pub(super) fn push(&self, table: &Table, number: u32) {
        let cluster = table.record(number);
        // Relaxed: the exchange decides, and nothing is taken off but all.
        let mut top = self.0.load(Relaxed);
        loop {
            cluster.below.store(top, Relaxed);
            // Release pairs with the Acquire in `take`: it hands over the link.
            match self.0.compare_exchange_weak(top, number, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all off, and tells `each` with the slots in use then.
    pub(super) fn take(&self, table: &Table, mut each: impl FnMut(u32, u32)) {
        // Acquire pairs with the Release in `push`.
        let mut number = self.0.swap(END, Acquire);
        while number != END {
            let cluster = table.record(number);
            let below = cluster.below.load(Relaxed);
            each(number, cluster.dequeue());
            number = below;
        }
    }
}
