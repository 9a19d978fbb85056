//! Huge pages: runs of frames that pools have, and that tables of their own lead to
//! (`crate::huge`).

use super::SoftMmu;
use super::tlb::{Tlb, TlbKey, Transfer};
use super::{cores::CoreHandle, entry::Pte};

impl SoftMmu {
    /// Gives so many frames to a pool for good; the first of them.
    pub(crate) fn take_huge(&self, frames: usize) -> Option<u32> {
        let mut next = self.next_huge.lock();
        let left = (self.tables.frames.huge().end - *next) as usize;
        let first = (frames <= left).then_some(*next)?;
        *next += frames as u32;
        Some(first)
    }

    /// Fills a frame of a huge page with zeros.
    ///
    /// # Safety
    /// The page is the caller's, and nobody reads it.
    pub(crate) unsafe fn clear_huge(&self, frame: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.tables.frames.clear(frame) };
    }

    /// An access by the page that `walk` finds, called inside of it; see `Tables::miss`.
    pub(super) fn miss_huge(
        &self,
        handle: &mut CoreHandle,
        tlb: &mut Tlb,
        place: TlbKey,
        may_write: bool,
        transfer: Transfer<'_>,
        walk: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let found = || walk().map_or(Pte::NONE, Pte::writable);
        self.tables
            .miss_found(handle, tlb, place, may_write, transfer, found)
    }
}
