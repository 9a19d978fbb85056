//! Giving pages of private memory up, or away, as `madvise(2)` says.
//!
//! Pages are locked one by one, as by reclaim.

use super::Anonymous;
use crate::reclaim::anonymous::Taken;
use core::ops::Range;

impl Anonymous {
    pub(crate) fn has_locked(&self, range: &Range<usize>) -> bool {
        self.count_pages(range.clone(), |state| state.stays()) > 0
    }

    /// Protects the resident pages in `range` and gives their slots up: they count as zeros
    /// until they are written to. Pages in swap are forgotten.
    pub(crate) fn free(&self, range: Range<usize>) {
        let node = &self.node;
        if !node.mmu.can_protect() {
            // Nobody would see a write.
            node.take_anonymous(self, range, Taken::Forgotten);
            return;
        }
        for span in self.window.spans(range) {
            // As in reclaim, a batch is held while pages are locked: a fork waits for it.
            let _batch = node.private.batches.take();
            let pages = self.page_range(&span);
            // Locked pages next to each other: one call protects them.
            let mut run = 0..0;
            let mut next = self.pages.next_used(pages.start);
            while next < pages.end {
                if !self.pages.is_unused(next) && self.free_one(next) {
                    if run.end != next {
                        self.end_free(core::mem::replace(&mut run, next..next));
                    }
                    run.end = next + 1;
                }
                next = self.pages.next_used(next + 1);
            }
            self.end_free(run);
        }
    }

    /// Locks a page and frees it; true if it is still to be protected and unlocked.
    fn free_one(&self, page: usize) -> bool {
        let state = self.pages.lock_bare(page);
        if state.is_resident() && !state.is_zero() && !state.stays() {
            return true;
        }
        let after = match state.is_swapped() {
            true => {
                self.forget_read(page);
                self.put_slot(self.pages.slot(page));
                self.pages.set_slot(page, None);
                state.to_absent()
            }
            false => state,
        };
        self.pages.unlock(page, after);
        false
    }

    /// Protects residents that are locked, and unlocks them as zeros to be.
    fn end_free(&self, run: Range<usize>) {
        if run.is_empty() {
            return;
        }
        let addr = |page: usize| self.window.address(page as u64, 0);
        let range = addr(run.start)..addr(run.end - 1) + crate::PAGE_SIZE;
        self.node.mmu.protect(core::slice::from_ref(&range));
        for page in run {
            self.put_slot(self.pages.slot(page));
            self.pages.set_slot(page, None);
            let state = self.pages.state(page);
            self.pages.unlock(page, state.to_clean().with_level(0));
        }
    }

    /// Lets the hand take the pages of `range` when it comes by.
    pub(crate) fn cold(&self, range: Range<usize>) {
        let pages = self.page_range(&range);
        let mut next = self.pages.next_used(pages.start);
        while next < pages.end {
            let state = self.pages.state(next);
            if state.is_resident() && state.level() + state.passes() > 0 {
                // Locked by somebody: it is being used.
                self.pages.change(next, state, state.with_level(0));
            }
            next = self.pages.next_used(next + 1);
        }
    }
}
