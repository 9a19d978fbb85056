//! Taking pages out of a cache on purpose: truncate, invalidate, the end.

use super::folio::{BLOCK_BYTES, Folio, flag};
use super::{FolioRef, PageCache};
use crate::PAGE_SIZE;
use crate::fault::{NeverInterrupted, unlocked};
use core::ops::Range;
use sync::atomic::Ordering;

impl PageCache {
    /// The backing now ends at byte `end`: nothing past it is shown any more.
    /// A longer backing shows more only up to the window's size.
    pub fn truncate(&self, end: u64) {
        let window = self.addresses();
        let before = self.end();
        let end = end.min((window.end - window.start) as u64);
        // Release pairs with the Acquire in `PageCache::end`, and a fault that
        // read the old end and inserts a folio afterwards is refused under
        // the bucket's lock, or found by the walk below.
        self.end.store(end, Ordering::Release);
        let first = end.min(before) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        self.evict_range(self.address(first)..window.end);
    }

    /// Forgets the pages of `range`: the next touch reads them again.
    pub fn invalidate(&self, range: Range<usize>) {
        let window = self.addresses();
        let start = range.start.max(window.start) & !(PAGE_SIZE - 1);
        self.evict_range(start..range.end.min(window.end));
    }

    /// Forgets everything. No fault is under way and none begins; others may
    /// still be evicting, and are waited for.
    pub(super) fn evict_all(&self) {
        while self.folio_count() > 0 {
            self.evict_range(self.addresses());
            sync::thread::yield_now();
        }
    }

    fn evict_range(&self, range: Range<usize>) {
        if self.folio_count() == 0 || range.is_empty() {
            return;
        }
        let blocks = (range.end - range.start).div_ceil(BLOCK_BYTES);
        if blocks <= self.node.folios.len() as usize {
            let mut block = range.start & !(BLOCK_BYTES - 1);
            while block < range.end {
                while let Some(found) = self.any_in(block, &range) {
                    self.evict_one(found);
                }
                block += BLOCK_BYTES;
            }
        } else {
            // A large window with little in it: look at the folios instead.
            for id in 0..self.node.folios.len() {
                let addr = self.node.folios.get(id).range().start;
                let block = addr & !(BLOCK_BYTES - 1);
                if block + BLOCK_BYTES <= range.start || range.end <= block {
                    continue;
                }
                while let Some(found) = self.any_in(block, &range) {
                    self.evict_one(found);
                }
            }
        }
    }

    /// A folio of the block that has a page in `range`, and whether it is
    /// claimed: locked by us, and nobody but the index refers to it.
    fn any_in(&self, block: usize, range: &Range<usize>) -> Option<Found<'_>> {
        let bucket = self.node.index.lock(block, &self.node.folios);
        let folio = bucket.iter().find(|folio| {
            let pages = folio.range();
            pages.start & !(BLOCK_BYTES - 1) == block
                && pages.start < range.end
                && range.start < pages.end
        })?;
        if bucket.try_claim(folio) {
            return Some(Found::Claimed(folio));
        }
        bucket.get(folio);
        Some(Found::Busy(FolioRef::new(&self.node, folio)))
    }

    /// Evicts a claimed folio, or waits a while for whoever reads, maps or pins
    /// it; then the caller looks again. No reference is held after the wait,
    /// so that two who wait for one folio do not wait for each other.
    fn evict_one(&self, found: Found<'_>) {
        match found {
            Found::Claimed(folio) => self.node.evict_locked(folio),
            Found::Busy(folio) if folio.is(flag::LOCKED) => {
                unlocked(self, &folio, &NeverInterrupted);
            }
            Found::Busy(folio) => {
                drop(folio);
                let released = self.node.budget.subscribe();
                released.wait(PINNED_SLICE_NS);
            }
        }
    }
}

/// What `any_in` found.
enum Found<'a> {
    /// Locked by us, and only the index refers to it.
    Claimed(&'a Folio),
    /// Somebody reads, maps, evicts or pins it.
    Busy(FolioRef<'a>),
}

/// How long to sleep before a pinned folio is looked at again.
const PINNED_SLICE_NS: u64 = 1_000_000;
