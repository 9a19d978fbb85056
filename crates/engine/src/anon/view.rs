//! Where the pages of private memory are, as a store for its page cache: in
//! slots of swap, or in the file that they were mapped from.
//!
//! A page's words at that moment answer each query. A thread that reads a page
//! has put a locked folio of the page into the index before; a thread that gives a slot
//! up that a folio might be read from locks the page, takes the folio out, and only
//! then changes the words. So a slot that is read is not given to another before
//! the read is over; and where the words have changed before the read began, it ends
//! as [`NotRead::Changed`] and is forgotten.

use super::pages::Pages;
use crate::PAGE_SIZE;
use crate::store::{Complete, Extent, NO_COOKIE, Read, Reap, Store, StoreError};
use crate::swap::{Swap, SwapDevice};
use core::ops::Range;
use sync::Arc;

/// Why a page was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotRead {
    /// It is private memory, and elsewhere by now. No [`Store`] can say so: the fault
    /// that hears it looks again, and would for ever.
    Changed,
    /// The store failed.
    Failed(StoreError),
}

impl From<StoreError> for NotRead {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Pages of an extent at most: a block of the index has 16.
const MOST: usize = 64;
/// Reads that are passed on at a time; bounds the handler's stack.
const READS: usize = 8;

/// A file that is mapped privately: its bytes from `offset` on.
pub struct PrivateFile {
    /// The file.
    pub store: Arc<dyn Store>,
    /// A multiple of the page size.
    pub offset: u64,
}

impl PrivateFile {
    /// True if the file has bytes for a page, or ends before it: then the read of a touch reports the error. Of the file alone: a
    /// page that another thread has locked is no hole.
    pub(super) fn is_data(&self, page: usize) -> Result<bool, StoreError> {
        let offset = self.offset + (page * PAGE_SIZE) as u64;
        let is_before_end = offset < self.store.len()?;
        Ok(!is_before_end || matches!(self.store.extent(offset)?, Extent::Data(_)))
    }
}

/// The store of a private page cache.
pub(crate) struct View {
    pub(crate) pages: Arc<Pages>,
    pub(crate) swap: Option<Arc<Swap>>,
    pub(crate) private_file: Option<PrivateFile>,
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageLocation {
    /// At this byte of the swap device.
    Slot(u64),
    /// At this byte of the file.
    File(u64),
}

impl PageLocation {
    fn plus(self, bytes: u64) -> Self {
        match self {
            Self::Slot(offset) => Self::Slot(offset + bytes),
            Self::File(offset) => Self::File(offset + bytes),
        }
    }
}

impl View {
    fn device(&self) -> &dyn SwapDevice {
        let swap = self.swap.as_ref().expect("a page was swapped out");
        &**swap.device()
    }

    /// Where a page has to be read from, if it has to.
    fn place(&self, page: usize) -> Option<PageLocation> {
        let state = self.pages.unlocked_state(page)?;
        if state.is_swapped() {
            let slot = self.pages.slot(page)?;
            return Some(PageLocation::Slot(u64::from(slot) * PAGE_SIZE as u64));
        }
        let private_file = self.private_file.as_ref()?;
        let offset = private_file.offset + (page * PAGE_SIZE) as u64;
        state.is_absent().then_some(PageLocation::File(offset))
    }

    /// How many pages from `page` on lie in a row from `place` on, of `most`.
    fn run(&self, page: usize, place: PageLocation, most: usize) -> usize {
        let most = most.min(self.pages.count() - page);
        let follows = |&ahead: &usize| {
            self.place(page + ahead) == Some(place.plus((ahead * PAGE_SIZE) as u64))
        };
        1 + (1..most).take_while(follows).count()
    }
}

impl View {
    /// Reads pages from where they are at this moment, in the calling thread.
    ///
    /// # Safety
    /// As for [`Store::read`].
    pub(crate) unsafe fn read_now(
        &self,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, NotRead> {
        let mut done = 0;
        while done < bytes {
            let page = offset as usize / PAGE_SIZE + done / PAGE_SIZE;
            let place = self.place(page).ok_or(NotRead::Changed)?;
            let part = self.run(page, place, (bytes - done) / PAGE_SIZE) * PAGE_SIZE;
            let buffer = buffer.wrapping_add(done);
            // SAFETY: a part of the caller's buffer.
            let read = unsafe {
                match (place, &self.private_file) {
                    (PageLocation::File(offset), Some(private_file)) => {
                        private_file.store.read(offset, buffer, part)?
                    }
                    (PageLocation::Slot(offset) | PageLocation::File(offset), _) => {
                        match self.device().read(offset, buffer, part)? {
                            all if all == part => all,
                            _ => return Err(StoreError::Short.into()),
                        }
                    }
                }
            };
            done += read;
            if read < part {
                // The bytes behind the file's end are zeros only if it is the file's, too.
                let rest = page + part / PAGE_SIZE..(offset as usize + bytes) / PAGE_SIZE;
                let is_files = |page| matches!(self.place(page), Some(PageLocation::File(_)));
                return match { rest }.all(is_files) {
                    true => Ok(done),
                    false => Err(NotRead::Changed),
                };
            }
        }
        Ok(done)
    }
}

impl View {
    /// Starts reads from where their pages are at this moment; how many, from the front, were started.
    fn pass_on(&self, reads: &[Read], start: impl Fn(&dyn Store, &[Read]) -> usize) -> usize {
        let mut done = 0;
        while done < reads.len() {
            let group = &reads[done..reads.len().min(done + READS)];
            let mut placed = [reads[0]; READS];
            let mut of_file = None;
            let mut count = 0;
            for read in group {
                let page = read.offset as usize / PAGE_SIZE;
                let pages = read.bytes / PAGE_SIZE;
                let Some(place) = self.place(page) else { break };
                let (offset, is_file) = match place {
                    PageLocation::Slot(offset) => (offset, false),
                    PageLocation::File(offset) => (offset, true),
                };
                if self.run(page, place, pages) < pages || of_file.is_some_and(|of| of != is_file) {
                    break;
                }
                of_file = Some(is_file);
                placed[count] = Read { offset, ..*read };
                count += 1;
            }
            if count == 0 {
                break;
            }
            let placed = &placed[..count];
            let begun = match (of_file, &self.private_file) {
                (Some(true), Some(private_file)) => start(&*private_file.store, placed),
                _ => start(self.device(), placed),
            };
            done += begun;
            if begun < count {
                break;
            }
        }
        done
    }
}

impl Store for View {
    fn len(&self) -> Result<u64, StoreError> {
        Ok((self.pages.count() * PAGE_SIZE) as u64)
    }

    fn extent(&self, offset: u64) -> Result<Extent, StoreError> {
        let page = (offset / PAGE_SIZE as u64) as usize;
        let bytes =
            |pages: Range<usize>| (pages.start * PAGE_SIZE) as u64..(pages.end * PAGE_SIZE) as u64;
        let alone = Extent::Hole(bytes(page..page + 1));
        let Some(place) = self.place(page) else {
            return Ok(alone);
        };
        let run = bytes(page..page + self.run(page, place, MOST));
        let (PageLocation::File(start), Some(private_file)) = (place, &self.private_file) else {
            return Ok(Extent::Data(run));
        };
        if start >= private_file.store.len()? {
            // The read of a touch reports the error.
            return Ok(Extent::Data(run));
        }
        let back = |range: Range<u64>| {
            let end = range.end.min(start + (run.end - run.start));
            run.start..run.start + (end - start).next_multiple_of(PAGE_SIZE as u64)
        };
        Ok(match private_file.store.extent(start)? {
            Extent::Data(range) => Extent::Data(back(range)),
            Extent::Hole(range) => Extent::Hole(back(range)),
        })
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        // SAFETY: the caller's promise.
        match unsafe { self.read_now(offset, buffer, bytes) } {
            Ok(read) => Ok(read),
            Err(NotRead::Failed(error)) => Err(error),
            // The page cache asks `read_now`; to all others there are no such bytes.
            Err(NotRead::Changed) => Err(StoreError::Short),
        }
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        // SAFETY: the caller's promise.
        self.pass_on(reads, |store, reads| unsafe { store.submit(reads) })
    }

    fn takes_apart(&self) -> bool {
        let of_swap = |swap: &Arc<Swap>| swap.device().takes_apart();
        let of_file = |private_file: &PrivateFile| private_file.store.takes_apart();
        self.swap.as_ref().is_some_and(of_swap) || self.private_file.as_ref().is_some_and(of_file)
    }

    unsafe fn submit_apart(&self, reads: &[Read]) -> usize {
        // SAFETY: the caller's promise.
        self.pass_on(reads, |store, reads| unsafe { store.submit_apart(reads) })
    }

    fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        let of_swap = match &self.swap {
            Some(swap) => swap.device().reap(cookie, complete, timeout_ns),
            None => Reap::NotInFlight,
        };
        match (&self.private_file, of_swap) {
            (Some(private_file), Reap::NotInFlight) => {
                private_file.store.reap(cookie, complete, timeout_ns)
            }
            (Some(private_file), Reap::TimedOut) => {
                private_file.store.reap(NO_COOKIE, complete, 0);
                Reap::TimedOut
            }
            (None, of_swap) => of_swap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anon::PageState;
    use crate::budget::Budget;

    /// A file that ends after its first page.
    struct OnePage;

    impl Store for OnePage {
        fn len(&self) -> Result<u64, StoreError> {
            Ok(PAGE_SIZE as u64)
        }

        unsafe fn read(&self, offset: u64, _: *mut u8, bytes: usize) -> Result<usize, StoreError> {
            Ok(bytes.min(PAGE_SIZE.saturating_sub(offset as usize)))
        }
    }

    #[test]
    fn pages_in_swap_behind_the_files_end_are_not_taken_for_its() {
        // The words of pages are atomics: those of other worlds are used within their runs alone.
        if !module_path!().starts_with("softfault_engine::") {
            return;
        }
        let budget = Budget::new(1 << 10);
        let pages = Arc::new(Pages::new(4).unwrap());
        assert!((0..4).all(|page| pages.pay_for(page, &budget)));
        let view = View {
            pages: pages.clone(),
            swap: None,
            private_file: Some(PrivateFile {
                store: Arc::new(OnePage),
                offset: 0,
            }),
        };
        let mut buffer = vec![0; 4 * PAGE_SIZE];
        let mut read = |pages: usize| {
            // SAFETY: into the buffer, which has that many pages.
            unsafe { view.read_now(0, buffer.as_mut_ptr(), pages * PAGE_SIZE) }
        };
        assert_eq!(read(4), Ok(PAGE_SIZE));
        pages.enter(3, PageState::ABSENT.to_swapped(0), Some(0));
        assert_eq!(read(3), Ok(PAGE_SIZE));
        assert_eq!(read(4), Err(NotRead::Changed));
    }
}
