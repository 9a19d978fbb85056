//! Files.

use super::{SoftEngine, SoftPinned};
use crate::access_path::AccessPath;
use crate::advice::Advice;
use crate::error::FaultError;
use crate::file_map::FileMap;
use crate::files::{Look, OpenedWindow};
use crate::generation::ProcessGeneration;
use crate::range::{clip, offsets, within};
use core::mem::ManuallyDrop;
use core::ops::{Range, RangeBounds};
use softfault_engine::cache::Residency;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// A file, mapped for reading.
pub struct SoftMap {
    pub(super) engine: SoftEngine,
    /// Taken when it is dropped.
    pub(super) file: ManuallyDrop<FileMap>,
    len: usize,
    /// Forks that there were when it was made, which do not know it.
    pub(super) forks: u64,
}

impl SoftMap {
    pub(super) fn new(engine: &SoftEngine, file: BorrowedFd<'_>) -> io::Result<Self> {
        let inner = &engine.inner;
        let forks = engine.forks();
        let on_truncate = inner.options.on_truncate;
        let looked = Look::to_map(file)?;
        if looked.identity.size == 0 {
            Look::may_be_empty(file)?;
        }
        let files = &inner.files;
        let opened = files.open(&inner.managed, file, &looked, (on_truncate, None))?;
        let place = (&inner.managed, files);
        let (file, part) = FileMap::new(place, AccessPath::ByCalls, opened, OpenedWindow::whole)?;
        Ok(Self {
            engine: engine.clone(),
            len: part.len(),
            forks: *forks,
            file: ManuallyDrop::new(file),
        })
    }

    /// Bytes of the file when it was mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the file was empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The engine of the map.
    pub fn engine(&self) -> &SoftEngine {
        &self.engine
    }

    /// Copies bytes from `offset` on; returns the number of bytes copied.
    /// The bytes are those that the file had when their page was read.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<usize, FaultError> {
        let addresses = clip(self.start(), self.len, offset, buffer.len());
        let space = &self.engine.inner.managed.space;
        let count = addresses.len();
        self.engine
            .read(space, addresses.start, &mut buffer[..count])?;
        Ok(count)
    }

    /// Brings a range into memory and keeps it there while the result lives.
    /// Up to half of the budget can be pinned, and each pin is charged as by [`Mmap::pin`](crate::Mmap::pin).
    pub fn pin(&self, range: impl RangeBounds<usize>) -> Result<SoftPinned<'_>, FaultError> {
        SoftPinned::new(self, offsets(range, self.len))
    }

    /// Brings many ranges into memory, in any order, with many reads in flight. Blocks until
    /// they are in memory, or until the deadline. Returns a result for each range: success, or the
    /// error; see [`Mmap::fault_in_many`](crate::Mmap::fault_in_many).
    pub fn fault_in_many(
        &self,
        ranges: &[Range<usize>],
        until: Option<Instant>,
    ) -> Vec<Result<(), FaultError>> {
        let place = (self.start(), self.len);
        self.engine.fault_in_many(place, ranges, until)
    }

    /// Starts to read a range, as far as spare memory goes, and does not wait.
    pub fn prefetch(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let addresses = self.addresses(&offsets(range, self.len))?;
        self.file.prefetch(addresses);
        Ok(())
    }

    /// Gives advice about all accesses to the map.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        let addresses = self.addresses(&(0..self.len))?;
        if addresses.is_empty() {
            return Ok(());
        }
        self.file
            .advise(&self.engine.inner.managed, addresses, advice)
    }

    /// The number of pages of a range that are in memory.
    pub fn residency(&self, range: impl RangeBounds<usize>) -> Result<Residency, FaultError> {
        let addresses = self.addresses(&offsets(range, self.len))?;
        Ok(self.file.residency(addresses))
    }

    /// The window.
    #[cfg(test)]
    pub(crate) fn cache(&self) -> &softfault_engine::cache::PageCache {
        self.file.cache()
    }

    /// Where the engine's space, and each of its forks, shows the first byte.
    pub(super) fn start(&self) -> usize {
        self.file.cache().addresses().start
    }

    /// The addresses of a range of offsets, if it is within the map.
    pub(super) fn addresses(&self, range: &Range<usize>) -> Result<Range<usize>, FaultError> {
        self.engine.check()?;
        within(self.start(), self.len, range)
    }
}

impl core::fmt::Debug for SoftMap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftMap").field("len", &self.len).finish()
    }
}

impl Drop for SoftMap {
    fn drop(&mut self) {
        if ProcessGeneration::is_child() {
            return;
        }
        let inner = &self.engine.inner;
        // SAFETY: nobody uses it after this.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        file.unmap(&inner.managed, &inner.files);
    }
}
