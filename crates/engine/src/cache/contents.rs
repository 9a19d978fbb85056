//! Whose pages a cache has, and all that differs by that.

use super::PageCache;
use super::folio::{BLOCK_BYTES, Folio, flag};
use crate::PAGE_SIZE;
use crate::anon::{NotRead, View};
use crate::budget::FLOOR;
use crate::mmu::Access;
use crate::readahead::Mapped;
use crate::store::StoreError;
use crate::swap::Swap;
use core::ops::Range;
use sync::Arc;
use sync::stat::Counter;

/// Whose pages they are.
pub(super) enum Contents {
    /// A file's: mapped as folios, and evicted as such.
    File,
    /// Private memory's, which this says where to read: mapped, they are the memory's own,
    /// and their folio goes. So a folio of private memory is never mapped.
    Private(Arc<View>),
}

impl PageCache {
    /// Where the pages are, if they are those of private memory.
    pub(crate) fn private(&self) -> Option<&View> {
        match &self.contents {
            Contents::File => None,
            Contents::Private(view) => Some(view),
        }
    }

    /// True if they are private memory's.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self.contents, Contents::Private(_))
    }

    /// Pages of the budget that faults on these pages leave to others: private memory does
    /// to files, which can always be evicted again.
    pub(crate) fn floor(&self) -> u64 {
        match self.contents {
            Contents::File => 0,
            Contents::Private(_) => FLOOR,
        }
    }

    /// Reads pages from where they are at this moment, in the calling thread. `missing`: the store did not have them at hand.
    ///
    /// # Safety
    /// As for [`Store::read`](crate::store::Store::read).
    pub(super) unsafe fn read_now(
        &self,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
        missing: bool,
    ) -> Result<usize, NotRead> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.contents {
                Contents::File if missing => Ok(self.store.read_missing(offset, buffer, bytes)?),
                Contents::File => Ok(self.store.read(offset, buffer, bytes)?),
                Contents::Private(view) => view.read_now(offset, buffer, bytes),
            }
        }
    }

    /// The result of a read of a folio. A swap device that has less than was written to it has
    /// failed: half a page is never shown.
    pub(super) fn whole(
        &self,
        folio: &Folio,
        result: Result<usize, NotRead>,
    ) -> Result<usize, NotRead> {
        let Contents::Private(view) = &self.contents else {
            return result;
        };
        let Some(bytes) = (result.ok()).filter(|&bytes| bytes < folio.pages() * PAGE_SIZE) else {
            return result;
        };
        // The page in which they stop: a page before it may be in swap, and the file may end here.
        let page = self.page(folio.range().start) as usize + bytes / PAGE_SIZE;
        match view.pages.state(page).is_swapped() {
            true => Err(StoreError::Short.into()),
            false => result,
        }
    }

    /// Of so many bytes that were read from `addr` on, those that are shown: of a file that is written to, those before its known end. What
    /// others have written past that would be written back as the program's own.
    pub(crate) fn known_bytes(&self, addr: usize, bytes: usize) -> usize {
        match self.is_writable() {
            true => bytes.min(self.end().saturating_sub(self.offset(addr)) as usize),
            false => bytes,
        }
    }

    /// Maps a missing page of a window that may be written to as zeros, protected. Where that is refused a touch reads it. The caller holds
    /// the lock of its folio.
    pub(super) fn show_zeros(&self, page: usize) {
        let zeros = core::ptr::from_ref(&[0_u8; PAGE_SIZE]) as *const [u8];
        let to = (self.window.reservation(), page);
        // SAFETY: a page of zeros, which stays; the page lies in the window, and nobody else maps it while the folio is locked.
        let _ = unsafe { self.node.mmu.copy(to, zeros, Access::ReadOnly) };
    }

    /// True if neighbours in the window are neighbours in the store, too: in a
    /// file, but not in swap.
    pub(super) fn is_in_a_row(&self) -> bool {
        !self.is_private()
    }

    /// Counts faults that gave their lock up to wait for I/O.
    pub(crate) fn retry_mmap_drop(&self) -> &Counter {
        match self.swap() {
            Some(swap) => &swap.stats.retry_mmap_drop,
            None => &self.node.stats.retry_mmap_drop,
        }
    }

    /// Counts retries that found their folio gone.
    pub(crate) fn retry_io_miss(&self) -> &Counter {
        match self.swap() {
            Some(swap) => &swap.stats.retry_io_miss,
            None => &self.node.stats.retry_io_miss,
        }
    }

    /// The swap that pages are read from.
    fn swap(&self) -> Option<&Swap> {
        self.private()?.swap.as_deref()
    }

    /// True if `addr`'s page is in the window.
    pub(crate) fn is_mapped(&self, addr: usize) -> bool {
        match &self.contents {
            Contents::File => (self.find(addr)).is_some_and(|folio| folio.is(flag::MAPPED)),
            Contents::Private(view) => view.pages.state(self.page(addr) as usize).is_resident(),
        }
    }

    /// The pages of `addr`'s block that are in the window, but for some.
    pub(super) fn mapped_beside(&self, addr: usize, but: &Range<usize>) -> Mapped {
        let block = addr & !(BLOCK_BYTES - 1);
        let window = self.addresses();
        let block = block.max(window.start)..(block + BLOCK_BYTES).min(window.end);
        let mut mapped = Mapped::default();
        let mut add = |addr: usize| {
            if !but.contains(&addr) {
                mapped.add(self.page(addr));
            }
        };
        match &self.contents {
            Contents::File => {
                let bucket = self.node.index.lock(addr, &self.node.folios);
                let folios = bucket.iter().filter(|folio| folio.is(flag::MAPPED));
                for folio in folios.filter(|folio| block.contains(&folio.range().start)) {
                    folio.range().step_by(PAGE_SIZE).for_each(&mut add);
                }
            }
            Contents::Private(view) => {
                let pages = block.step_by(PAGE_SIZE);
                let is_in =
                    |addr: &usize| view.pages.state(self.page(*addr) as usize).is_resident();
                pages.filter(is_in).for_each(&mut add);
            }
        }
        mapped
    }
}
