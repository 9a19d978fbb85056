//! Bringing pages in, and keeping them: `mlock(2)`.

use super::{MmapMut, MmapMutKind};
use crate::FaultError;
use crate::file_map::populate_by_kernel;
use crate::range::offsets;
use core::ops::RangeBounds;
use std::io;

impl MmapMut {
    /// Brings a range into memory, as writes would. Where the budget has no room, and
    /// swap none either, that is an error here, and the pages up to there are in memory.
    /// Without swap they stay; with it, [`lock`](Self::lock) keeps them.
    pub fn populate(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let addresses = self.addresses(offsets(range, self.len))?;
        match &self.kind {
            MmapMutKind::Managed(private) => private.populate(self.managed(), addresses, true),
            MmapMutKind::Writable(file) => file.populate(self.managed(), addresses),
            MmapMutKind::Kernel(_) => populate_by_kernel(&addresses, true),
            MmapMutKind::Empty => Ok(()),
        }
    }

    /// Brings all of it into memory, where it stays and may be handed to system calls,
    /// until [`unlock`](Self::unlock). Up to half of the budget can be locked or pinned; a map that writes to its
    /// file counts as a [`pin`](crate::Mmap::pin) does, any other for its pages.
    pub fn lock(&self) -> io::Result<()> {
        self.addresses(0..self.len)?;
        match &self.kind {
            MmapMutKind::Managed(private) => Ok(private.lock(self.managed())?),
            MmapMutKind::Writable(file) => file.lock(self.managed()),
            MmapMutKind::Kernel(map) => map.lock(true),
            MmapMutKind::Empty => Ok(()),
        }
    }

    /// Lets it be evicted again.
    pub fn unlock(&self) -> io::Result<()> {
        self.addresses(0..self.len)?;
        match &self.kind {
            MmapMutKind::Managed(private) => {
                private.unlock(self.managed());
                Ok(())
            }
            MmapMutKind::Writable(file) => file.unlock(),
            MmapMutKind::Kernel(map) => map.lock(false),
            MmapMutKind::Empty => Ok(()),
        }
    }
}
