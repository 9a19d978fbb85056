//! Bringing pages in, and locking them: `mlock(2)`.

use super::{MmapMut, ServedBy};
use crate::FaultError;
use crate::file_map::populate_by_kernel;
use crate::kernel::lock_by_kernel;
use crate::range::offsets;
use core::ops::RangeBounds;
use std::io;

impl MmapMut {
    /// Brings a range into memory, as writes would. If neither the budget nor swap has
    /// room, it returns an error, and the pages before that point are in memory.
    /// Without swap the pages stay in memory; with swap, [`lock`](Self::lock) keeps them there.
    pub fn populate(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let addresses = self.addresses(offsets(range, self.len))?;
        match self.served_by() {
            ServedBy::Private(private) => private.populate(self.managed(), addresses, true),
            ServedBy::File(file) => file.populate(self.managed(), addresses),
            ServedBy::Kernel => populate_by_kernel(&addresses, true),
            ServedBy::Nobody => Ok(()),
        }
    }

    /// Brings the whole map into memory, where it stays until [`unlock`](Self::unlock). System calls may use it
    /// meanwhile. Up to half of the budget can be locked or pinned; a map that writes to its
    /// file is charged like a [`pin`](crate::Mmap::pin), any other map for its pages.
    pub fn lock(&self) -> io::Result<()> {
        let addresses = self.addresses(0..self.len)?;
        match self.served_by() {
            ServedBy::Private(private) => Ok(private.lock(self.managed())?),
            ServedBy::File(file) => file.lock(self.managed()),
            ServedBy::Kernel => lock_by_kernel(&addresses, true),
            ServedBy::Nobody => Ok(()),
        }
    }

    /// Lets the pages be evicted again.
    pub fn unlock(&self) -> io::Result<()> {
        let addresses = self.addresses(0..self.len)?;
        match self.served_by() {
            ServedBy::Private(private) => private.unlock(self.managed()),
            ServedBy::File(file) => file.unlock(),
            ServedBy::Kernel => lock_by_kernel(&addresses, false)?,
            ServedBy::Nobody => {}
        }
        Ok(())
    }
}
