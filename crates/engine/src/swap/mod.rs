//! Swap: where pages go that were written and cannot stay.
//!
//! ```text
//!   anonymous page ──evicted──► slot ──touched──► folio in frames ──► the window
//!        word: RESIDENT          word: SWAPPED       swap cache          again
//! ```
//!
//! A [`SwapDevice`] is a store of slots, each a page long, that can be written.
//! Which slots are in use, and how often, [`Slots`] knows. A page that is being read back,
//! or was read ahead, is in a folio of the anonymous memory's own page cache, whose
//! store is a [`View`](crate::anon): it says where each page is. So a swap-in waits, retries and
//! reads ahead as a fault on a file does.

use crate::budget::Budget;
use crate::lock::Mutex;
use crate::store::{Store, StoreError};
use core::ops::Range;
use sync::Arc;

mod slots;
mod stats;

pub use slots::{CLUSTER, MOST as MOST_SLOTS, Slots};
pub use stats::SwapStats;

/// A store of slots. Slot `n` is the page at byte `n` × the page size; the bytes
/// of a slot that was not written are never read. As for all of [`Store`],
/// nothing here may use the heap or a lazily made thread-local.
pub trait SwapDevice: Store {
    /// Writes whole pages to neighbouring slots from byte `offset` on. On an
    /// error, the contents of these slots are unknown.
    ///
    /// # Safety
    /// Each of `pages` is readable for a page, and nobody writes to it meanwhile.
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError>;

    /// Nobody will ask for the bytes of the range until they are written again.
    fn discard(&self, _range: Range<u64>) {}
}

/// A device, and the state of its slots.
pub struct Swap {
    /// Immutable.
    device: Arc<dyn SwapDevice>,
    /// Which slots are in use.
    pub slots: Slots,
    /// True if children may read slots that were in use at a fork. Its lock is taken
    /// before any of `slots`.
    inherited: Mutex<bool>,
    /// Whether a child lives that may. Immutable.
    child_lives: fn() -> bool,
    /// The statistics.
    pub stats: SwapStats,
}

impl Swap {
    /// All of `device`: as many slots as it has pages, but [`MOST_SLOTS`] at most. The table of slots is
    /// charged to `budget`, a page at a time, as it is used.
    pub fn new(device: Arc<dyn SwapDevice>, budget: Arc<Budget>) -> Option<Self> {
        Self::from_slot(device, 0, budget)
    }

    /// The same of a device whose slots below `first` are not ours to give out or
    /// to free: they were written by the process that this one was forked from.
    pub fn from_slot(device: Arc<dyn SwapDevice>, first: u32, budget: Arc<Budget>) -> Option<Self> {
        let pages = device.len().ok()? / crate::PAGE_SIZE as u64;
        let end = u32::try_from(pages).unwrap_or(u32::MAX).min(slots::MOST);
        Some(Self {
            device,
            slots: Slots::new(first..end, budget)?,
            inherited: Mutex::new(false),
            child_lives: || false,
            stats: SwapStats::default(),
        })
    }

    /// The same, in a process that may fork: `live` tells whether a child lives, in
    /// fault handlers too. It has been true since before [`inherit`](Self::inherit).
    pub fn with_live_children(mut self, live: fn() -> bool) -> Self {
        self.child_lives = live;
        self
    }

    /// The process is about to fork: the slots in use stay until no child
    /// lives. Nobody takes slots meanwhile ([`Node::stop_eviction`]).
    ///
    /// [`Node::stop_eviction`]: crate::cache::Node::stop_eviction
    pub fn inherit(&self) {
        let mut inherited = self.inherited.lock();
        self.slots.inherit();
        *inherited = true;
    }

    /// Frees slots that only children had, if none lives any more.
    pub fn free_if_no_child_lives(&self) {
        // The holder of the lock does it, or is about to fork.
        let Some(mut inherited) = self.inherited.try_lock() else {
            return;
        };
        if *inherited && !(self.child_lives)() {
            self.slots.children_gone(|slot| self.discard(slot));
            *inherited = false;
        }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn SwapDevice> {
        &self.device
    }

    /// Lets go of a slot; the last to do so frees it.
    pub fn put(&self, slot: u32) {
        // Before others can have it: they write to it at once.
        self.slots.put(slot, || self.discard(slot));
    }

    fn discard(&self, slot: u32) {
        let start = u64::from(slot) * crate::PAGE_SIZE as u64;
        self.device.discard(start..start + crate::PAGE_SIZE as u64);
    }
}
