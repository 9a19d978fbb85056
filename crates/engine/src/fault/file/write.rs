//! A write to a page of a file that is in the window: Linux's `page_mkwrite`.

use super::{Fault, Wait, mmu_error, vanished};
use crate::PAGE_SIZE;
use crate::budget::Need;
use crate::cache::folio::{Folio, flag};
use crate::cache::{FolioRef, PageCache, Writes};
use crate::mmu::{Access, MmuError, Moved};
use core::ops::Range;
use sync::Arc;

/// A write fault at `addr`, a page of a mapped folio of a file that may be written to.
pub(super) fn fault(cache: &Arc<PageCache>, folio: FolioRef<'_>, addr: usize) -> Fault {
    // A dirty page has its blocks, and adds no dirty page.
    let is_dirty = || folio.dirty_pages() & folio.bit_of(addr) != 0;
    let is_asked = !is_dirty();
    if is_asked && let Err(wait) = may_write(cache, addr) {
        // It stays meanwhile: evicted, it would be read again, and that would pass for progress.
        return Fault::Retry(wait.keeping(folio));
    }
    if !folio.try_lock() {
        return Fault::Retry(Wait::folio(cache, folio));
    }
    if folio.state() & (flag::MAPPED | flag::DEAD) != flag::MAPPED {
        folio.unlock();
        return Fault::Again;
    }
    let was_dirty = is_dirty();
    if !was_dirty && !is_asked {
        // Written back since.
        folio.unlock();
        return Fault::Again;
    }
    // Then somebody else's fault was faster, or the whole window is just being protected, or the page is gone.
    let was_writable = was_dirty && !cache.is_protected(&folio);
    if !was_dirty {
        cache.begin_dirty(&folio, addr..addr + PAGE_SIZE);
    }
    let made = (cache.node.mmu).make_writable(cache.window.reservation(), addr);
    if made.is_err() && !was_dirty {
        cache.end_dirty(&folio, folio.dirty_pages() & !folio.bit_of(addr));
    }
    cache.note_writable(&folio);
    folio.unlock();
    match made {
        Err(error) => Fault::Error(mmu_error(error)),
        Ok(()) if was_writable => vanished::fault(cache, folio, addr),
        Ok(()) => Fault::Mapped,
    }
}

/// Ok if the page at `addr` may become dirty now, or is private memory's; if not, the wait. Before it is mapped, too: a page that is mapped
/// protected faults once more, and so do all pages behind it; and a system call's touch that fails gets its error where the page is
/// missing.
pub(super) fn may_write(cache: &Arc<PageCache>, addr: usize) -> Result<(), Wait> {
    let Some(writes) = &cache.writes else {
        return Ok(());
    };
    if !writes.to().is_reserved(cache.offset(addr)) {
        return Err(Wait::reserve(cache, addr));
    }
    match cache.node.may_dirty() {
        true => Ok(()),
        false => Err(Wait::memory(cache, Need::Clean)),
    }
}

impl PageCache {
    /// True if the page at `addr`, which a write has touched, can be mapped for it at once.
    pub(super) fn is_ready_for_write(&self, addr: usize) -> bool {
        self.is_reserved(addr) && self.node.may_dirty()
    }

    /// True if the page at `addr` can be written to, and has a place where that goes.
    pub(super) fn is_reserved(&self, addr: usize) -> bool {
        let is_reserved = |writes: &Writes| writes.to().is_reserved(self.offset(addr));
        self.writes.as_ref().is_some_and(is_reserved)
    }

    /// Moves a row into the window: its span begins at `start`, and `frame` is its first. The caller has all its folios locked, which
    /// are read, and the span has nothing.
    pub(super) fn move_in(&self, start: usize, frame: u32) -> Moved {
        let (to, node) = ((self.window.reservation(), start), &self.node);
        // SAFETY: all frames of the chunk are those of the caller's folios, so nobody else accesses them.
        unsafe { node.mmu.move_in(to, node.frames.address(frame)) }
    }

    /// Copies a folio into the window, the pages at `written`, if there are some, to be written to, and
    /// all others protected. The caller holds the folio lock.
    pub(super) fn copy_in(
        &self,
        folio: &Folio,
        written: Option<Range<usize>>,
    ) -> Result<(), MmuError> {
        let (range, bytes) = (folio.range(), self.node.bytes_of(folio).cast::<u8>());
        let copy = |part: Range<usize>, access| {
            if part.is_empty() {
                return Ok(());
            }
            let from = bytes.wrapping_add(part.start - range.start);
            let of = core::ptr::slice_from_raw_parts(from, part.len());
            // SAFETY: the frames hold the folio's bytes; its range lies in the window.
            unsafe { (self.node.mmu).copy((self.window.reservation(), part.start), of, access) }
        };
        let Some(written) = written else {
            return copy(range.clone(), Access::ReadOnly);
        };
        copy(range.start..written.start, Access::ReadOnly)?;
        copy(written.end..range.end, Access::ReadOnly)?;
        copy(written, Access::Writable)
    }
}
