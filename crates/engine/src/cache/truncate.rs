//! Taking pages out of a cache on purpose: truncate, invalidate, the end.
//!
//! Pinned pages stay as they are; the last pin forgets them (`fault::unpin`).

use super::PageCache;
use super::folio::{Folio, flag};
use crate::PAGE_SIZE;
use crate::cache::reads::unlocked;
use crate::page::NeverInterrupted;
use crate::reclaim::{Dirty, Sweep};
use core::ops::Range;
use sync::atomic::Ordering;

impl PageCache {
    /// The backing now ends at byte `end`: nothing past it is shown any more.
    /// A longer backing shows more only up to the window's size.
    pub fn truncate(&self, end: u64) {
        let window = self.addresses();
        let before = self.end();
        let end = end.min((window.end - window.start) as u64);
        if end > before && before < window.len() as u64 {
            // What was written past the end, in its page, is nobody's: it must not come to be the file's.
            let last = self.address(before / PAGE_SIZE as u64 * PAGE_SIZE as u64);
            self.evict_range(last..last + PAGE_SIZE, Dirty::Written);
        }
        // Release pairs with the Acquire in `PageCache::end`, and a fault that
        // read the old end and inserts a folio afterwards is refused under
        // the bucket's lock, or found by the walk below. The walk skips what
        // has no folios: a folio is counted before its end is looked at.
        self.end.store(end, Ordering::Release);
        let first = end.min(before) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        // What is behind the end goes nowhere: the store knows it.
        self.evict_range(self.address(first)..window.end, Dirty::Written);
    }

    /// Forgets the pages of `range`: the next touch reads them again. What is dirty is written before; what cannot be
    /// written stays.
    pub fn invalidate(&self, range: Range<usize>) {
        let window = self.addresses();
        let start = range.start.max(window.start) & !(PAGE_SIZE - 1);
        self.evict_range(start..range.end.min(window.end), Dirty::Written);
    }

    /// Forgets everything, what is dirty too. No fault is under way and none begins; others may
    /// still be evicting, and are waited for.
    pub(crate) fn evict_all(&self) {
        while self.folio_count() > 0 {
            self.evict_range(self.addresses(), Dirty::Dropped);
            sync::thread::yield_now();
        }
    }

    fn evict_range(&self, range: Range<usize>, dirty: Dirty) {
        // AcqRel pairs with the count in `insert`: whoever comes to it later
        // sees the end that `truncate` has set.
        if self.folios.fetch_add(0, Ordering::AcqRel) == 0 || range.is_empty() {
            return;
        }
        let mut sweep = Some(self.node.sweep(dirty));
        let mut walk = self.walk(range.clone());
        while let Some(part) = self.next_part(&mut walk) {
            self.evict_part(part, &range, dirty, &mut sweep);
        }
    }

    /// Evicts what a part of a block has in `range`, or leaves it to `sweep` locked.
    /// Waits for whoever reads or maps a folio; one that is pinned goes with
    /// its last pin.
    fn evict_part<'a>(
        &'a self,
        mut part: Range<usize>,
        range: &Range<usize>,
        dirty: Dirty,
        sweep: &mut Option<Sweep<'a>>,
    ) {
        let is_to_go = |folio: &Folio| !folio.is(flag::DOOMED);
        while let Some(folio) = self.next_folio(&part, range, is_to_go) {
            if !folio.try_lock() {
                // A folio is waited for with nothing in hand.
                *sweep = None;
                unlocked(self, &folio, &NeverInterrupted);
                continue;
            }
            // Those that the sweep has locked are still in the index.
            part.start = folio.range().end;
            if folio.is(flag::DEAD) {
                folio.unlock();
            } else if folio.is_pinned() {
                folio.change(flag::DOOMED, 0);
                folio.unlock();
            } else {
                sweep
                    .get_or_insert_with(|| self.node.sweep(dirty))
                    .push(&folio);
            }
        }
    }
}
