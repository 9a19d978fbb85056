//! How long is waited for memory that others are at work on.
//!
//! Sleeps are counted, not time alone: on a busy machine a thread that waits may run once
//! in seconds, and so may those that are about to give the memory back.

use crate::budget::{Need, SLICE_NS, Subscription};
use crate::cache::Node;
use crate::clock::Clock;

/// Slices in a row in which no memory came back to anybody, after which it is
/// not to be had: a second.
pub(crate) const STANDSTILL: u32 = 100;
/// How long is waited where memory comes back, but always to others.
pub(crate) const LONGEST_NS: u64 = 30_000_000_000;
/// The same with `mmap_lock` held, which all faults of the space wait for: a quarter of a second, and a second.
const STANDSTILL_LOCKED: u32 = 25;
const LONGEST_LOCKED_NS: u64 = 1_000_000_000;

/// The waits of a thread that needs memory. They come to an end: it may hold locks that faults wait for, as a fork does.
pub(crate) struct MemoryWaitLimit<'a> {
    clock: &'a dyn Clock,
    began: u64,
    /// The last slices, in which nothing came back to anybody.
    standstill: u32,
    /// So many of them are enough.
    most_standstill: u32,
    longest_ns: u64,
}

impl<'a> MemoryWaitLimit<'a> {
    /// Waits from now on.
    pub(crate) fn new(clock: &'a dyn Clock) -> Self {
        Self {
            clock,
            began: clock.now_ns(),
            standstill: 0,
            most_standstill: STANDSTILL,
            longest_ns: LONGEST_NS,
        }
    }

    /// The same, for a thread that has write-locked `mmap_lock` and mappings.
    pub(crate) fn with_mmap_lock(clock: &'a dyn Clock) -> Self {
        Self {
            most_standstill: STANDSTILL_LOCKED,
            longest_ns: LONGEST_LOCKED_NS,
            ..Self::new(clock)
        }
    }

    /// Makes room, or waits for others to do so: look again. False if neither is of use any more.
    pub(crate) fn make_room(&mut self, node: &Node, need: Need) -> bool {
        let subscription = node.budget.subscribe();
        if node.make_room(need) {
            return true;
        }
        // That nothing can be evicted says only that it is in the hands of others now: they give it back in a moment.
        if self.is_over() {
            return false;
        }
        node.stats.memory_waits.add(1);
        self.wait(subscription);
        true
    }

    /// Sleeps until memory comes back to anybody, or for a slice.
    pub(crate) fn wait(&mut self, subscription: Subscription<'_>) {
        match subscription.wait(SLICE_NS) {
            true => self.standstill = 0,
            false => self.standstill += 1,
        }
    }

    /// True if there is no use in waiting again.
    pub(crate) fn is_over(&self) -> bool {
        let waited = self.clock.now_ns().saturating_sub(self.began);
        self.standstill >= self.most_standstill || waited >= self.longest_ns
    }
}
