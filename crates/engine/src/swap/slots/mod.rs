//! Which slots are in use, and by how many pages.
//!
//! A slot has a word. It is free when the word is 0:
//!
//! | word | the slot is |
//! |---|---|
//! | 0 | free |
//! | n | had by n pages: of one space, and of those forked from it |
//! | [`INHERITED`] and n | the same, and known to children: not free at n = 0 |
//! | [`LEAVING`] | nobody's, and its bytes are being discarded |
//!
//! Slots come in clusters, as Linux has them. Pages that are written out together lie
//! together, so a run of slots is taken from one cluster, and one after the other:
//!
//! 1. from the cluster that the last run came from, behind that run;
//! 2. from a cluster that is free as a whole, or was never used: the latter only as long as the table is an eighth of the
//!    budget at most;
//! 3. from the cluster with the shortest run that is long enough;
//! 4. from the cluster with the longest run, until there is no free slot;
//! 5. from one that was never used.
//!
//! A cluster counts its slots in use. Allocation uses the [`AllocCursor`]: its lock
//! guards the lists that clusters are on, by the run that can be had there
//! ([`lists`]). A put of a slot takes no lock: it clears the word, then counts
//! down, and if that makes the cluster better than its list says, it leaves it on
//! the [`queue`] for the next allocation. So no search is longer than a cluster,
//! however many slots are in use.
//!
//! A count is never below the sum of the words: a word is cleared before, and set
//! under the hand's lock.

use crate::budget::Budget;
use crate::lock::{Mutex, order};
use core::ops::Range;
use sync::Arc;
use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

mod alloc;
mod cluster;
mod inherit;
mod lists;
mod queue;
mod run;
mod shape;
mod table;

use lists::AllocCursor;
use queue::ClusterQueue;
use shape::Shape;
use table::SwapMap;

/// The most slots of a device: 4 TiB.
pub const MOST: u32 = 1 << 30;
/// The most slots of a cluster: 2 MiB.
pub const CLUSTER: u32 = 512;

/// Of a word: a child process may read the slot.
const INHERITED: u32 = 1 << 31;
/// Of a word, alone: the slot's last user is freeing it.
const LEAVING: u32 = 1 << 30;
/// Of a word: how many pages have the slot.
const PAGES: u32 = LEAVING - 1;

/// The slots of a device.
pub struct Slots {
    table: SwapMap,
    /// Clusters that have more free slots than the allocation cursor knows of.
    queue: ClusterQueue,
    hand: Mutex<AllocCursor, { order::SWAP_SLOTS }>,
    /// Pages of the table are charged here.
    budget: Arc<Budget>,
}

impl Slots {
    /// All of `range` free. `None` where the system has no memory.
    pub fn new(range: Range<u32>, budget: Arc<Budget>) -> Option<Self> {
        Self::with_clusters(range, CLUSTER, budget)
    }

    /// The same with clusters of `slots`, a power of two and at most [`CLUSTER`].
    pub fn with_clusters(range: Range<u32>, slots: u32, budget: Arc<Budget>) -> Option<Self> {
        Some(Self {
            table: SwapMap::new(Shape::new(range, slots))?,
            queue: ClusterQueue::new(),
            hand: Mutex::ranked(AllocCursor::new()),
            budget,
        })
    }

    /// One more page has the slot.
    pub fn get(&self, slot: u32) {
        if let Some(word) = self.word(slot) {
            // Relaxed: the caller's page has it too, and puts it later.
            let before = word.fetch_add(1, Relaxed);
            assert!(before & PAGES > 0, "slot {slot} is nobody's");
        }
    }

    /// One page less has it; true if it is free now. Then `discard` comes before the slot can be had by
    /// others.
    pub fn put(&self, slot: u32, discard: impl FnOnce()) -> bool {
        let Some(word) = self.word(slot) else {
            return false;
        };
        // Relaxed: the exchange decides.
        let mut now = word.load(Relaxed);
        loop {
            assert!(now & PAGES > 0, "slot {slot} is nobody's");
            let after = if now == 1 { LEAVING } else { now - 1 };
            // Release and Acquire of all puts pair, so that all use of the slot comes before the last one's discard.
            match word.compare_exchange_weak(now, after, AcqRel, Relaxed) {
                Ok(_) if after != LEAVING => return false,
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        discard();
        // Release pairs with the Acquire of the run that the slot is in next ([`run`]): all use of the slot, and its discard,
        // come before. Nobody else writes a word that is leaving.
        word.store(0, Release);
        self.count_out(slot);
        true
    }

    /// A slot is free, and its word 0: counts it out of its cluster.
    fn count_out(&self, slot: u32) {
        let number = self.table.number_of(slot);
        let cluster = self.table.record(number);
        if cluster.count_out(self.table.size(number)) {
            self.queue.push(&self.table, number);
        }
    }

    /// True if a page has it, or a child may read it.
    pub fn is_used(&self, slot: u32) -> bool {
        // Acquire: all use of a free slot is over, as in `put`.
        (self.word(slot)).is_some_and(|word| word.load(Acquire) != 0)
    }

    /// Pages of the table that are charged.
    pub fn charged_pages(&self) -> u64 {
        self.table.pages(self.hand.lock().paid)
    }

    /// Slots that are ours to give out.
    pub fn count(&self) -> u32 {
        self.table.count()
    }

    /// Slots in use, those that only children have included. Exact while nobody
    /// takes one or puts it.
    pub fn used(&self) -> u32 {
        let known = self.hand.lock().fresh;
        let used = |number| self.table.record(number).used();
        (0..known).map(used).sum()
    }

    /// The slot's word, if it is ours.
    fn word(&self, slot: u32) -> Option<&AtomicU32> {
        (self.table.contains(slot)).then(|| self.table.word(slot))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let paid = self.hand.lock().paid;
        self.budget.uncharge(self.table.pages(paid));
    }
}
