//! `madvise(2)`.

use super::{MmapMut, ServedBy};
use crate::range::advised;
use crate::{Advice, FaultError, UncheckedAdvice, faults};
use core::ops::Range;
use std::io;

impl MmapMut {
    /// Gives advice about all accesses to the map.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.advise_range(advice, 0, self.len)
    }

    /// Gives advice about accesses to a range, by whole pages.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        faults::reinstall_handler();
        let range = self.advised(offset, len)?;
        match self.served_by() {
            ServedBy::Nobody => Ok(()),
            ServedBy::Kernel => advice.to_kernel(&range),
            ServedBy::File(file) => file.advise(self.managed(), range, advice),
            ServedBy::Private(private) => private.advise(self.managed(), range, advice),
        }
    }

    /// Gives advice that may change bytes, for the whole map.
    ///
    /// # Safety
    /// As for memmap2: written bytes may change. Nothing may rely on them.
    pub unsafe fn unchecked_advise(&self, advice: UncheckedAdvice) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.unchecked_advise_range(advice, 0, self.len) }
    }

    /// Gives advice that may change bytes, for a range, by whole pages.
    ///
    /// # Safety
    /// See [`unchecked_advise`](Self::unchecked_advise).
    pub unsafe fn unchecked_advise_range(
        &self,
        advice: UncheckedAdvice,
        offset: usize,
        len: usize,
    ) -> io::Result<()> {
        let range = self.advised(offset, len)?;
        match self.served_by() {
            ServedBy::Nobody => Ok(()),
            ServedBy::Kernel => advice.to_kernel(&range),
            ServedBy::File(file) => file.unchecked_advise(range, advice),
            ServedBy::Private(private) => private.unchecked_advise(self.managed(), range, advice),
        }
    }

    fn advised(&self, offset: usize, len: usize) -> Result<Range<usize>, FaultError> {
        let all = self.addresses(0..self.len)?;
        advised(&all, offset, len)
    }
}
