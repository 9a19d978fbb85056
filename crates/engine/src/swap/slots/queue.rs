//! Clusters that got better since the last allocation: a stack that any thread pushes
//! to, and that the holder of the hand takes as a whole. It looks at a part of
//! them at a time: there may be as many as there are clusters.

use super::table::SwapMap;
use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Below the last.
const END: u32 = u32::MAX;

/// Clusters looked at in a call.
const PART: usize = 512;

/// Clusters that were taken off, and not looked at yet.
pub(super) struct TakenClusters(u32);

/// The queue. Links are in the clusters.
pub(super) struct ClusterQueue(AtomicU32);

impl ClusterQueue {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(END))
    }

    /// Puts a cluster on it; the caller has marked it as queued.
    pub(super) fn push(&self, table: &SwapMap, number: u32) {
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

    /// Takes some off, and tells `each` with the slots in use then. False if there
    /// were none.
    pub(super) fn take(
        &self,
        table: &SwapMap,
        taken: &mut TakenClusters,
        mut each: impl FnMut(u32, u32),
    ) -> bool {
        if taken.0 == END {
            // Acquire pairs with the Release in `push`.
            taken.0 = self.0.swap(END, Acquire);
        }
        let were_some = taken.0 != END;
        for _ in 0..PART {
            let number = taken.0;
            if number == END {
                break;
            }
            let cluster = table.record(number);
            taken.0 = cluster.below.load(Relaxed);
            each(number, cluster.dequeue());
        }
        were_some
    }
}

impl TakenClusters {
    pub(super) const NONE: Self = Self(END);
}
