//! How long is waited for memory that others are at work on.
//!
//! Sleeps are counted, not time alone: on a busy machine a thread that waits may run once
//! in seconds, and so may those that are about to give the memory back.

use crate::budget::{SLICE_NS, Subscription};
use crate::clock::Clock;

/// Slices in a row in which no memory came back to anybody, after which it is
/// not to be had: a second.
pub(crate) const STANDSTILL: u32 = 100;
/// How long is waited where memory comes back, but always to others.
pub(crate) const LONGEST_NS: u64 = 30_000_000_000;

/// The waits of a thread that needs memory. They come to an end: it may hold locks that faults wait for, as a fork does.
pub(crate) struct MemoryWaitLimit<'a> {
    clock: &'a dyn Clock,
    began: u64,
    /// The last slices, in which nothing came back to anybody.
    standstill: u32,
}

impl<'a> MemoryWaitLimit<'a> {
    /// Waits from now on.
    pub(crate) fn new(clock: &'a dyn Clock) -> Self {
        Self {
            clock,
            began: clock.now_ns(),
            standstill: 0,
        }
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
        self.standstill >= STANDSTILL || waited >= LONGEST_NS
    }
}
