//! What `madvise(2)` does to private memory at once: giving pages up, or away.
//!
//! They take no lock of the address space while they are at work: pages are locked one
//! by one, as by reclaim. A page that is unmapped meanwhile is unmapped.

use super::Anonymous;
use crate::mm::{AddressSpace, Backing, MmError};
use crate::reclaim::anonymous::Taken;
use core::ops::Range;
use sync::Arc;

impl AddressSpace {
    /// The pages of `range` are not wanted any more (`MADV_DONTNEED`): they are zeros
    /// again, or as the file has them. Fails where a page is locked in memory.
    pub fn dont_need(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| {
            let pages = part.clone();
            if anon.count_pages(pages, |state| state.stays()) > 0 {
                return Err(MmError::Locked);
            }
            anon.node.take_anonymous(anon, part, Taken::Forgotten);
            Ok(())
        })
    }

    /// The pages of `range` are not wanted any more unless they are written to again
    /// (`MADV_FREE`): until then they may become zeros at any time. Fails for private
    /// mappings of files, as Linux does.
    pub fn free(&self, range: Range<usize>) -> Result<(), MmError> {
        self.for_private(&range, |anon, part| match anon.origin() {
            Some(_) => Err(MmError::NotAnonymous),
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
            let piece = vma.with(|attributes| match &attributes.backing {
                Backing::Anonymous(anon) => {
                    let start = anon.window.address(attributes.pgoff, distance);
                    Some((anon.clone(), start..start + part.len()))
                }
                _ => None,
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
    /// Protects what is resident in `range` and gives its slots up: it counts as zeros
    /// until it is written to. What is in swap is forgotten.
    fn free(&self, range: Range<usize>) {
        let node = &self.node;
        let pages = self.page_range(&range);
        let mut next = self.pages.next_used(pages.start);
        while next < pages.end {
            let mut page = self.pages.lock(next);
            let state = page.state();
            if state.is_swapped() {
                self.forget_read(next);
                self.put_slot(page.slot());
                page.set_slot(None);
                page.set(state.to_absent());
            } else if state.is_resident() && !state.is_zero() && !state.stays() {
                let addr = self.window.address(next as u64, 0);
                node.mmu
                    .protect(core::slice::from_ref(&(addr..addr + crate::PAGE_SIZE)));
                self.put_slot(page.slot());
                page.set_slot(None);
                page.set(state.to_clean().with_level(0));
            }
            drop(page);
            next = self.pages.next_used(next + 1);
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
