//! How many pages may be pinned.

use super::folio::{BLOCK_PAGES, Folio, flag};
use super::{Node, PageCache};
use crate::PAGE_SIZE;
use crate::budget::FLOOR;
use crate::cache::reads::unlocked;
use crate::mmu::TABLE_SPAN;
use crate::page::NeverInterrupted;
use core::ops::Range;
use sync::atomic::{AtomicU64, Ordering};

/// Pages of a node that are pinned: never more than half of the budget.
#[derive(Default)]
pub(crate) struct Pins(AtomicU64);

impl Node {
    /// Counts `pages` as pinned if at most half of the budget is then, and if faults keep
    /// their floor beside the pages that maps hold. Decided once for all pages of a pin: one that had
    /// got some of them and waited for the others could wait for one that does the same.
    pub fn try_pin(&self, pages: u64) -> bool {
        let limit = self.budget.limit();
        let most = (limit / 2).min(limit.saturating_sub(self.budget.held() + FLOOR));
        let add = |pinned: u64| (pinned + pages <= most).then_some(pinned + pages);
        (self.pins.0)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    /// Pages counted as pinned.
    pub fn pinned_pages(&self) -> u64 {
        // Relaxed: a hint to everybody else.
        self.pins.0.load(Ordering::Relaxed)
    }

    /// Takes back the count of [`try_pin`](Self::try_pin).
    pub fn unpin_pages(&self, pages: u64) {
        let before = self.pins.0.fetch_sub(pages, Ordering::Relaxed);
        assert!(before >= pages, "more unpinned than pinned");
    }
}

impl PageCache {
    /// Admits a pin of the addresses `range`: decided once for all of its pages, and before
    /// the first. One that had got some of them and waited for the others could wait for one
    /// that does the same. Returns the pages that it counts for; `None` if that is more than
    /// may be pinned.
    pub fn admit_pin(&self, range: &Range<usize>) -> Option<u64> {
        if range.is_empty() {
            return Some(0);
        }
        let pages = (range.end - range.start).div_ceil(PAGE_SIZE);
        // Both ends may be in the middle of a folio; each page table beneath stays too.
        let most = pages + 2 * BLOCK_PAGES + pages / (TABLE_SPAN / PAGE_SIZE);
        let most = most as u64;
        let admitted = self.node.try_pin(most);
        // AcqRel: with the protection of the whole window (`dirty`).
        admitted.then(|| self.pinned.fetch_add(most, Ordering::AcqRel));
        admitted.then_some(most)
    }

    /// Takes back the count of [`admit_pin`](Self::admit_pin).
    pub fn dismiss_pin(&self, pages: u64) {
        self.pinned.fetch_sub(pages, Ordering::Relaxed);
        self.node.unpin_pages(pages);
    }

    /// No map of the cache is left: the next finds the window as a new one is.
    pub fn renew_window(&self) {
        self.node.mmu.renew(self.window.reservation());
    }

    /// Forgets leftover pins. No map of the cache is left, and a pin
    /// lives no longer than its map: one that is left was forgotten, as any value may be.
    pub fn forget_pins(&self) {
        let pages = self.pinned.swap(0, Ordering::Relaxed);
        if pages == 0 {
            return;
        }
        let range = self.addresses();
        let mut walk = self.walk(range.clone());
        while let Some(part) = self.next_part(&mut walk) {
            while let Some(folio) = self.next_folio(&part, &range, Folio::is_pinned) {
                while !folio.try_lock() {
                    unlocked(self, &folio, &NeverInterrupted);
                }
                while folio.is_pinned() {
                    self.unpin_folio(&folio);
                    // The pin's reference; ours is left.
                    self.node.put(&folio);
                }
                folio.change(0, flag::DOOMED);
                folio.unlock();
            }
        }
        self.node.unpin_pages(pages);
    }
}
