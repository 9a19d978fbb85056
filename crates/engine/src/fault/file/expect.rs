//! Writes that are expected. A program that writes a file over in order would otherwise fault at each page.
//!
//! Where the two pages before a fault are dirty, all pages of its folio from there on are mapped to be written to, and the
//! folio keeps its frames: they have the file's bytes. Whether a page was really written to is seen by
//! comparing the two, when the writer has gone on to the next folio, or by write-back, which protects the page before. So a
//! page that was not written to is never written back.

use crate::PAGE_SIZE;
use crate::cache::PageCache;
use crate::cache::folio::{Folio, flag};
use core::ops::Range;

impl PageCache {
    /// The pages of a folio that a write at `addr` makes writable.
    pub(super) fn expected(&self, folio: &Folio, addr: usize) -> Range<usize> {
        let page = addr..addr + PAGE_SIZE;
        let end = folio.range().end;
        match page.end < end && self.expects_writes(addr) {
            // Where there are no blocks yet, the first write reserves them.
            true => {
                addr..(page.end..end)
                    .step_by(PAGE_SIZE)
                    .find(|&page| !self.is_reserved(page))
                    .unwrap_or(end)
            }
            false => page,
        }
    }

    /// True if the two pages before `addr` are dirty.
    pub(super) fn expects_writes(&self, addr: usize) -> bool {
        let follows = |distance: usize| self.is_writable_at(addr - distance * PAGE_SIZE);
        let is_first = addr < self.addresses().start + 2 * PAGE_SIZE;
        let is_next = self.is_writable() && !is_first && follows(1) && follows(2);
        // Only where pages can be copied out is it seen which pages were written to.
        is_next && self.node.may_expect() && self.node.mmu.can_copy_out()
    }

    /// A writer has come to the folio at `addr`: lets the frames go of the one before.
    pub(super) fn settle_expected_before(&self, addr: usize) {
        if addr == self.addresses().start {
            // The page before is another file's, if it is anybody's.
            return;
        }
        let Some(before) = self.find(addr - PAGE_SIZE) else {
            return;
        };
        if before.is(flag::EXPECTED) && before.try_lock() {
            self.settle_expected(&before);
            before.unlock();
        }
    }

    /// Ends the expectation of writes to a folio: pages that were not written to are clean and protected again, and its frames are
    /// free. The caller holds the folio lock. No folio is pinned before this: a pinned folio is written back as it is, again and
    /// again, so the frames would soon differ from the file.
    pub(super) fn settle_expected(&self, folio: &Folio) {
        if !folio.is(flag::EXPECTED) {
            return;
        }
        debug_assert!(core::ptr::eq(folio.cache(), self) && !folio.is_pinned());
        if self.unwritten(folio) != 0 {
            // Also pages that were overwritten with the same bytes.
            let range = folio.range();
            self.node.mmu.protect(core::slice::from_ref(&range));
            let left = folio.dirty_pages() & !self.unwritten(folio);
            self.end_dirty(folio, left);
        }
        self.node.end_expected(folio);
    }

    /// Which dirty pages of a folio are as the file has them: nothing was written to them, or the same bytes. The caller holds the folio
    /// lock. For unprotected pages, as of some moment. Pages that the program has thrown away are not among them.
    pub(crate) fn unwritten(&self, folio: &Folio) -> u32 {
        if !folio.is(flag::EXPECTED) {
            return 0;
        }
        let dirty = folio.dirty_pages();
        let frames = self.node.frame_address(folio).cast_const();
        let (window, start) = (self.window.reservation(), folio.range().start);
        // SAFETY: the folio's frames, which nobody writes to while it is expected to be written to.
        let may_be = unsafe { self.node.mmu.may_be_same(start, dirty, frames) };
        let pages = (0..folio.pages()).filter(|page| may_be >> page & 1 == 1);
        pages.fold(0, |unwritten, page| {
            let (at, addr) = (page * PAGE_SIZE, start + page * PAGE_SIZE);
            // SAFETY: as above.
            let is_same = unsafe { self.node.mmu.is_same(window, addr, frames.add(at)) };
            unwritten | u32::from(is_same) << page
        })
    }
}
