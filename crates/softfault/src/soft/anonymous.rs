//! Private memory.

use super::SoftEngine;
use crate::error::too_large;
use crate::files::Look;
use crate::generation::ProcessGeneration;
use crate::options::RemapOptions;
use crate::private::{FilePart, Private};
use crate::range::{advised, clip, offsets};
use crate::{Advice, FaultError, UncheckedAdvice};
use core::ops::{Range, RangeBounds};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Private memory: zeros, or the bytes of a file, until written. A page counts against
/// the budget once it is written, or read from the file. It goes to swap if the engine
/// has some.
pub struct SoftMapMut {
    pub(super) engine: SoftEngine,
    /// None only while dropping.
    private: Option<Private>,
    len: usize,
    /// Forks that there were when it was made, which do not know it.
    pub(super) forks: u64,
    /// Where it was before it was changed, for the forks of then.
    past: Vec<MapAtFork>,
}

/// A map as some forks know it.
struct MapAtFork {
    /// Forks that were there when it changed.
    forks: u64,
    start: usize,
    len: usize,
}

impl SoftMapMut {
    pub(super) fn new(engine: &SoftEngine, len: usize) -> io::Result<Self> {
        Self::make(engine, len, None)
    }

    /// A whole file.
    pub(super) fn of_file(engine: &SoftEngine, file: BorrowedFd<'_>) -> io::Result<Self> {
        let inner = &engine.inner;
        let looked = Look::to_map(file)?;
        let len = usize::try_from(looked.identity.size).map_err(|_| too_large())?;
        let part = FilePart {
            store: inner.files.store(&inner.managed, file, &looked)?,
            offset: 0,
            on_truncate: inner.options.on_truncate,
        };
        Self::make(engine, len, Some(part))
    }

    fn make(engine: &SoftEngine, len: usize, part: Option<FilePart>) -> io::Result<Self> {
        let place = (&engine.inner.managed, &engine.inner.files);
        let forks = engine.forks();
        let private = Private::new(place, None, len, part)?;
        Ok(Self {
            engine: engine.clone(),
            private: Some(private),
            len,
            forks: *forks,
            past: Vec::new(),
        })
    }

    fn private(&self) -> &Private {
        self.private.as_ref().expect("until dropped")
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the map that are in memory, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.private().anonymous().resident_pages() * PAGE_SIZE
    }

    /// Copies bytes from `offset` on; returns the number of bytes copied.
    /// A concurrent write of another thread may be seen in part.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<usize, FaultError> {
        let addresses = clip(self.start(), self.len, offset, buffer.len());
        let count = addresses.len();
        let space = &self.engine.inner.managed.space;
        self.engine
            .read(space, addresses.start, &mut buffer[..count])?;
        Ok(count)
    }

    /// Copies `bytes` into the map at `offset`; returns the number of bytes that had room.
    /// Fails if the budget has no room for a page and nothing more can be
    /// evicted.
    pub fn write_at(&self, bytes: &[u8], offset: usize) -> Result<usize, FaultError> {
        let addresses = clip(self.start(), self.len, offset, bytes.len());
        let count = addresses.len();
        let space = &self.engine.inner.managed.space;
        self.engine.write(space, addresses.start, &bytes[..count])?;
        Ok(count)
    }

    /// Brings many ranges into memory, as reads would; see
    /// [`SoftMap::fault_in_many`](super::SoftMap::fault_in_many).
    pub fn fault_in_many(
        &self,
        ranges: &[Range<usize>],
        until: Option<Instant>,
    ) -> Vec<Result<(), FaultError>> {
        let place = (self.start(), self.len);
        self.engine.fault_in_many(place, ranges, until)
    }

    /// Gives advice about accesses to a range, by whole pages.
    pub fn advise(&self, advice: Advice, range: impl RangeBounds<usize>) -> io::Result<()> {
        let addresses = self.advised(range)?;
        let managed = &self.engine.inner.managed;
        self.private().advise(managed, addresses, advice)
    }

    /// Gives advice that may change bytes, for a range, by whole pages.
    pub fn unchecked_advise(
        &self,
        advice: UncheckedAdvice,
        range: impl RangeBounds<usize>,
    ) -> io::Result<()> {
        let addresses = self.advised(range)?;
        let managed = &self.engine.inner.managed;
        self.private().unchecked_advise(managed, addresses, advice)
    }

    fn advised(&self, range: impl RangeBounds<usize>) -> io::Result<Range<usize>> {
        self.engine.check()?;
        let range = offsets(range, self.len);
        if range.start > range.end {
            return Err(FaultError::OutOfRange.into());
        }
        let all = self.start()..self.start() + self.len;
        let advised = advised(&all, range.start, range.end - range.start);
        Ok(advised?)
    }

    /// Brings the whole map into memory, where it stays until [`unlock`](Self::unlock). Up to
    /// half of the budget can be locked or pinned.
    pub fn lock(&self) -> Result<(), FaultError> {
        self.engine.check()?;
        self.private().lock(&self.engine.inner.managed)
    }

    /// Lets the pages be evicted again.
    pub fn unlock(&self) -> Result<(), FaultError> {
        self.engine.check()?;
        self.private().unlock(&self.engine.inner.managed);
        Ok(())
    }

    /// Makes the map read-only: a write is an error.
    pub fn make_read_only(&mut self) -> io::Result<()> {
        self.protect(Protection::Read)
    }

    /// Makes the map writable again.
    pub fn make_mut(&mut self) -> io::Result<()> {
        self.protect(Protection::ReadWrite)
    }

    fn protect(&mut self, protection: Protection) -> io::Result<()> {
        self.engine.check()?;
        let private = self.private.as_mut().expect("until dropped");
        private.protect(&self.engine.inner.managed, protection)
    }

    /// Changes the length of the map to `new_len` bytes. Its pages stay in memory or in swap;
    /// new pages are zeros, or have the file's bytes. Forks keep the map as it was.
    pub fn remap(&mut self, new_len: usize, options: RemapOptions) -> io::Result<()> {
        self.engine.check()?;
        let engine = self.engine.clone();
        let forks = engine.forks();
        let past = MapAtFork {
            forks: *forks,
            start: self.start(),
            len: self.len,
        };
        let private = self.private.as_mut().expect("until dropped");
        let may_move = options.moves();
        private.remap(&self.engine.inner.managed, new_len, may_move)?;
        self.len = new_len;
        // Without a fork since the last time, nobody knows it as it was.
        if self.past.last().map_or(0, |past| past.forks) < past.forks {
            self.past.push(past);
        }
        Ok(())
    }

    /// Where the engine's space shows the first byte.
    fn start(&self) -> usize {
        self.private().start()
    }

    /// Where a fork, of this number from 0 on, shows the first byte, and how many there
    /// are.
    pub(super) fn place_in_fork(&self, number: u64) -> (usize, usize) {
        let past = self.past.iter().find(|past| number < past.forks);
        past.map_or((self.start(), self.len), |past| (past.start, past.len))
    }
}

impl core::fmt::Debug for SoftMapMut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftMapMut")
            .field("len", &self.len)
            .finish()
    }
}

impl Drop for SoftMapMut {
    fn drop(&mut self) {
        let Some(private) = self.private.take() else {
            return;
        };
        if ProcessGeneration::is_child() {
            core::mem::forget(private);
            return;
        }
        private.unmap(&self.engine.inner.managed);
    }
}
