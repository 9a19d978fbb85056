//! What `madvise(2)` does to private memory at once: giving pages up, or away.
//!
//! They take no lock of the address space while they are at work: pages are locked one
//! by one, as by reclaim. A page that is unmapped meanwhile is unmapped.

use super::Anonymous;
use crate::fault::prefetch;
use crate::mm::{AddressSpace, MmError};
use crate::reclaim::anonymous::Taken;
use core::ops::Range;
use sync::Arc;

impl AddressSpace {
    /// The pages of `range` are not wanted any more (`MADV_DONTNEED`): they are zeros
    /// again, or as the file has them. Fails where a page is locked in memory.
    pub fn dont_need(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            if anon.has_locked(&part) {
                return Err(MmError::Locked);
            }
            anon.node.take_anonymous(anon, part, Taken::Forgotten);
            Ok(())
        })
    }

    /// The pages of `range` are not wanted any more unless they are written to again
    /// (`MADV_FREE`): until then they may become zeros at any time. Fails for private
    /// mappings of files, and where a page is locked in memory, as Linux does.
    pub fn free(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| match anon.origin() {
            Some(_) => Err(MmError::NotAnonymous),
            None if anon.has_locked(&part) => Err(MmError::Locked),
            None => {
                anon.free(part);
                Ok(())
            }
        })
    }

    /// The pages of `range` go before others do (`MADV_COLD`).
    pub fn cold(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            anon.cold(part);
            Ok(())
        })
    }

    /// The pages of `range` go to swap now (`MADV_PAGEOUT`), as far as there is room.
    pub fn page_out(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            anon.node.take_anonymous(anon, part, Taken::Evicted);
            Ok(())
        })
    }

    /// Starts to read what of `range` is in swap, or in a file (`MADV_WILLNEED`), as far
    /// as spare frames allow.
    pub fn will_need(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            if let Some(cache) = &anon.cache {
                prefetch(cache, part);
            }
            Ok(())
        })
    }

    /// Calls `f` with each piece of private memory that is mapped in `range`, by its
    /// window's addresses; files are passed over. Fails, at the end, if the range has a
    /// hole.
    fn for_private(
        &self,
        range: &Range<usize>,
        f: impl Fn(&Arc<Anonymous>, Range<usize>) -> Result<(), MmError>,
    ) -> Result<(), MmError> {
        let mut done = Ok(());
        let mut at = range.start;
        while at < range.end {
            let Ok(vma) = self.lock_vma_or_mmap_lock(at) else {
                done = done.and(Err(MmError::Unmapped));
                match self.next_mapped(at) {
                    Some(next) => at = next,
                    None => break,
                }
                continue;
            };
            let part = at..vma.vma().end().min(range.end);
            let distance = at - vma.vma().start();
            let piece = vma.with(|attributes| {
                let anon = Anonymous::shown(&attributes.backing)?;
                let start = anon.window.address(attributes.pgoff, distance);
                Some((anon.clone(), start..start + part.len()))
            });
            // The VMA lock is not held over I/O: the reference keeps the memory.
            drop(vma);
            if let Some((anon, piece)) = piece {
                done = done.and(f(&anon, piece));
            }
            at = part.end;
        }
        done
    }
}

impl Anonymous {
    fn has_locked(&self, range: &Range<usize>) -> bool {
        self.count_pages(range.clone(), |state| state.stays()) > 0
    }

    /// Protects what is resident in `range` and gives its slots up: it counts as zeros
    /// until it is written to. What is in swap is forgotten.
    fn free(&self, range: Range<usize>) {
        let node = &self.node;
        if !node.mmu.can_protect() {
            // Nobody would see a write.
            node.take_anonymous(self, range, Taken::Forgotten);
            return;
        }
        for span in self.window.spans(range) {
            // As reclaim has pages locked: who forks waits for it.
            let _batch = node.anonymous_batches.take();
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
    fn cold(&self, range: Range<usize>) {
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
