//! A file of an engine, as its maps have it: a part of the window that shows it. Maps that are
//! reached by loads and maps that are reached by calls have the same.
//!
//! | file | has |
//! |---|---|
//! | `advise` | `madvise(2)` |
//! | `pin` | pages that stay: `mlock(2)`, pins |
//! | `populate` | pages brought in, with errors as values; the start of that |

mod advise;
mod pin;
mod populate;

pub(crate) use pin::{FilePin, populate_by_kernel};

use crate::access_path::AccessPath;
use crate::error::{EngineFaultError, FaultError};
use crate::files::{Files, Hold, OpenedWindow, Served};
use crate::managed::Managed;
use core::ops::Range;
use softfault_engine::cache::{PageCache, Residency};
use softfault_engine::store::NO_COOKIE;
use softfault_engine::{PAGE_SIZE, fault};
use std::io;
use std::sync::Arc;

/// A map of a file.
pub(crate) struct FileMap {
    cache: Arc<PageCache>,
    served: Arc<Served>,
    access_path: AccessPath,
}

impl FileMap {
    /// A map of the `part` of a window that has been opened for it, and the addresses of that.
    /// Where there is no such part, the window is closed again.
    pub(crate) fn new(
        (managed, files): (&Managed, &Files),
        access_path: AccessPath,
        opened: OpenedWindow,
        part: impl FnOnce(&OpenedWindow) -> io::Result<Range<usize>>,
    ) -> io::Result<(Self, Range<usize>)> {
        let part = part(&opened);
        let map = Self {
            cache: opened.cache,
            served: opened.served,
            access_path,
        };
        match part {
            Ok(part) => Ok((map, part)),
            Err(error) => {
                map.unmap(managed, files);
                Err(error)
            }
        }
    }

    /// The window.
    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// The error with which something could not be written, since the call that left its count in `seen`.
    pub(crate) fn write_error_since(&self, seen: &mut u32) -> io::Result<()> {
        let failed = self.cache.write_error_since(seen);
        failed.map_or(Ok(()), |failed| Err(FaultError::from(failed).into()))
    }

    /// The window and its server.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (Arc<PageCache>, Arc<Served>) {
        (self.cache.clone(), self.served.clone())
    }

    /// True in a child of fork, of a parent's map, if the kernel maps the file in its place.
    pub(crate) fn was_inherited(&self) -> bool {
        self.served.was_inherited()
    }

    /// Keeps it served as it is, by the engine or by the kernel.
    pub(crate) fn hold(&self) -> Hold {
        let _masked = self.access_path.masked();
        self.served.hold()
    }

    /// Lets the kernel serve it, or the engine, for tests. False: it did already, or somebody holds it.
    pub(crate) fn change_server(&self, kernel: bool) -> io::Result<bool> {
        let _masked = self.access_path.masked();
        let changed = match kernel {
            true => self.served.show(&self.cache, false),
            false => self.served.take_over(&self.cache),
        };
        changed.map_err(|error| crate::error::map(error.into()))
    }

    /// Watches the memory that there is, and lets the kernel serve it if it may and the page cache has it.
    pub(crate) fn consider(&self, managed: &Managed, files: &Files) {
        let _masked = self.access_path.masked();
        files.watch(managed);
        files.consider(&managed.reads, &self.cache, &self.served);
        self.served.will_be_read();
    }

    /// The pages of some addresses that are in memory. Pages that the kernel serves are not the engine's.
    pub(crate) fn residency(&self, addresses: Range<usize>) -> Residency {
        let _masked = self.access_path.masked();
        // Reads that are over and that nobody waited for are not under way any
        // more.
        let completion = fault::Completion(self.cache.node());
        self.cache.store().reap(NO_COOKIE, &completion, 0);
        self.cache.residency(addresses)
    }

    /// True if a call that reads a missing page waits until its fault is served.
    pub(crate) fn calls_wait(&self) -> bool {
        self.cache.node().mmu.calls_wait()
    }

    /// Bytes of the pages from `addr` on that nobody has in memory, `most` at most; those behind may not be either.
    pub(crate) fn absent_from(&self, addr: usize, most: usize) -> usize {
        let _masked = self.access_path.masked();
        fault::absent_from(&self.cache, addr, most)
    }

    /// Writes whole pages that nobody has in memory, from an address on, of a file that may be written to; returns how many bytes.
    ///
    /// # Safety
    /// The bytes can be read; where [calls wait](Self::calls_wait), without a fault that the engine serves.
    pub(crate) unsafe fn write_whole(&self, addr: usize, bytes: *const [u8]) -> usize {
        let _masked = self.access_path.masked();
        // SAFETY: the caller vouches for the bytes; a map's window stays as long as the map.
        unsafe { fault::write_whole(&self.cache, addr, bytes) }
    }

    /// Has some addresses taken out of the file; see [`PageCache::empty`].
    pub(crate) fn empty(
        &self,
        addresses: Range<usize>,
        take: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let _masked = self.access_path.masked();
        self.cache.empty(addresses, take)
    }

    /// An error if the file, which may be written to, ends before one of these pages, as it is now: others may have cut off pages that are
    /// in memory.
    pub(crate) fn is_all_there(&self, addresses: &Range<usize>) -> Result<(), FaultError> {
        if addresses.is_empty() {
            return Ok(());
        }
        let last = (addresses.end - 1) / PAGE_SIZE * PAGE_SIZE - self.cache.addresses().start;
        let _masked = self.access_path.masked();
        match self.cache.store().len() {
            Ok(bytes) if bytes <= last as u64 => Err(FaultError::BeyondEnd),
            Ok(_) => Ok(()),
            Err(error) => Err(EngineFaultError::from(error).into()),
        }
    }

    /// Forgets the pages of some addresses. Pages that the kernel serves are as the file is, anyway.
    pub(crate) fn invalidate(&self, addresses: Range<usize>) {
        let _masked = self.access_path.masked();
        self.cache.invalidate(addresses);
    }

    /// Writes back the dirty pages of some addresses, if a map writes to the file.
    pub(crate) fn write_back(&self, addresses: Range<usize>) {
        if self.cache.is_writable() {
            crate::files::write_back(&self.cache, addresses);
        }
    }

    /// Takes it away; nobody has a reference to the bytes any more.
    pub(crate) fn unmap(self, managed: &Managed, files: &Files) {
        let _masked = self.access_path.masked();
        // Dropped before the mask, as a parameter is not: it may have the last reference to its file.
        let this = self;
        files.close(managed, this.cache);
    }

    /// Whether children of fork have its window as a private mapping of the file.
    pub(crate) fn allow_inherit_as_private(&self, private: bool) {
        self.served.allow_inherit_as_private(private);
    }

    /// The window, for a caller that takes it away in another way.
    pub(crate) fn into_cache(self) -> Arc<PageCache> {
        self.cache
    }

    /// In a child of fork, of a map that its parent made: nothing is given back.
    pub(crate) fn leave(&self) {
        core::mem::forget(self.cache.clone());
    }
}
