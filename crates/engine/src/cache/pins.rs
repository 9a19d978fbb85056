//! How many pages of a cache may be pinned.

use super::PageCache;
use super::folio::{BLOCK_PAGES, flag};
use crate::PAGE_SIZE;
use crate::cache::reads::unlocked;
use crate::mmu::TABLE_SPAN;
use crate::page::NeverInterrupted;
use core::ops::Range;
use sync::atomic::Ordering;

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
        // Relaxed: read when there is no map left.
        admitted.then(|| self.pinned.fetch_add(most, Ordering::Relaxed));
        admitted.then_some(most)
    }

    /// Takes back what [`admit_pin`](Self::admit_pin) admitted.
    pub fn dismiss_pin(&self, pages: u64) {
        self.pinned.fetch_sub(pages, Ordering::Relaxed);
        self.node.unpin_pages(pages);
    }

    /// Lets go of what nobody has pinned any more. No map of the cache is left, and a pin
    /// lives no longer than its map: one that is left was forgotten, as any value may be.
    pub fn forget_pins(&self) {
        let pages = self.pinned.swap(0, Ordering::Relaxed);
        if pages == 0 {
            return;
        }
        self.node.unpin_pages(pages);
        let mut addr = self.addresses().start;
        while addr < self.addresses().end {
            let Some(folio) = self.find(addr) else {
                addr += PAGE_SIZE;
                continue;
            };
            addr = folio.range().end;
            while !folio.try_lock() {
                unlocked(self, &folio, &NeverInterrupted);
            }
            while folio.is_pinned() {
                folio.unpin();
                // The pin's reference; ours is left.
                self.node.put(&folio);
            }
            folio.change(0, flag::DOOMED);
            folio.unlock();
        }
    }
}
