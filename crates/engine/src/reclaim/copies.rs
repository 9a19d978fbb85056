//! Pages for copies of dirty pages, which the budget is charged for.

use super::batches::CONCURRENT;
use super::write_back::PAGES;
use crate::PAGE_SIZE;
use crate::cache::folio::BLOCK_PAGES;
use core::ptr::NonNull;
use sync::pages;

/// Pages for the copies of a batch.
pub(crate) struct Copies {
    /// Immutable.
    bytes: NonNull<u8>,
    /// Immutable.
    pages: usize,
}

// SAFETY: memory of its own.
unsafe impl Send for Copies {}

impl Copies {
    /// `None` of no pages, and where the system has no memory.
    pub(super) fn new(pages: usize) -> Option<Self> {
        let bytes = (pages > 0).then(|| pages::map(pages * PAGE_SIZE))??;
        Some(Self { bytes, pages })
    }

    /// Pages that a batch copies, under a budget of so many pages: all batches together at most a 32nd of it.
    pub(crate) fn under(limit: u64) -> usize {
        (limit as usize / (32 * CONCURRENT)).clamp(BLOCK_PAGES, PAGES)
    }

    /// How many there are.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// The place of the copy of that number.
    pub(super) fn page(&self, number: usize) -> *mut u8 {
        assert!(number < self.pages, "more pages than there is room for");
        // SAFETY: within the memory.
        unsafe { self.bytes.add(number * PAGE_SIZE) }.as_ptr()
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, and nobody's any more.
        unsafe { pages::unmap(self.bytes, self.pages * PAGE_SIZE) };
    }
}
