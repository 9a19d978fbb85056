//! The record of a cluster: the number of its slots in use, and its place.

use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use sync::wait::WaitWord;

/// Of the state: the cluster is on the queue, or about to be.
const QUEUED: u32 = 1 << 31;

/// A cluster's record. All zeros are a cluster that is free, and on no list.
#[repr(C)]
pub(super) struct Cluster {
    /// Slots in use, and [`QUEUED`].
    state: WaitWord,
    /// The one below on the queue. Written by the thread that set [`QUEUED`].
    pub(super) below: WaitWord,
    /// Where it is: see [`super::lists`]. Under the hand's lock, as the next two.
    pub(super) place: WaitWord,
    /// The neighbours on its list.
    pub(super) next: WaitWord,
    pub(super) prev: WaitWord,
}

impl Cluster {
    /// Slots in use.
    pub(super) fn used(&self) -> u32 {
        // Acquire pairs with the Release in `count_out`: a thread that counts a slot as
        // free finds its word 0.
        self.state.load(Acquire) & !QUEUED
    }

    /// `slots` more are in use; returns how many are.
    pub(super) fn count_in(&self, slots: u32) -> u32 {
        // Acquire as in `used`.
        (self.state.fetch_add(slots, Acquire) & !QUEUED) + slots
    }

    /// One less is. True if the caller has to put the cluster, which has `size`
    /// slots, on the queue: it became better than its list may say.
    pub(super) fn count_out(&self, size: u32) -> bool {
        // Release pairs with the Acquire in `used`, `count_in` and `dequeue`.
        let before = self.state.fetch_sub(1, AcqRel);
        let used = (before & !QUEUED) - 1;
        // More than there are for a moment: another has taken the slot already,
        // between the word and this.
        let free = size.saturating_sub(used);
        let is_better = free == size || free.is_power_of_two();
        // Acquire pairs with the Release in `dequeue`: `below` has been read.
        is_better && before & QUEUED == 0 && self.state.fetch_or(QUEUED, Acquire) & QUEUED == 0
    }

    /// It is off the queue, and `below` read; returns how many are in use.
    pub(super) fn dequeue(&self) -> u32 {
        // Release pairs with the Acquire in `count_out`. Acquire as in `used`: a thread
        // that saw it queued, and did nothing more, had counted out before.
        let before = self.state.fetch_and(!QUEUED, AcqRel);
        // A link that is not this push's leads in circles.
        assert!(before & QUEUED != 0, "a cluster that nobody queued");
        before & !QUEUED
    }

    /// Its place. For the holder of the hand.
    pub(super) fn place(&self) -> u32 {
        // Relaxed: the hand's lock.
        self.place.load(Relaxed)
    }
}
