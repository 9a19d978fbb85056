//! `madvise(2)`.

use super::{MmapMut, MmapMutKind};
use crate::range::advised;
use crate::{Advice, FaultError, UncheckedAdvice, faults};
use core::ops::Range;
use std::io;

impl MmapMut {
    /// Says what to expect of all accesses.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.advise_range(advice, 0, self.len)
    }

    /// Says what to expect of accesses to a range, by whole pages.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        faults::get_in_front();
        let range = self.advised(offset, len)?;
        match &self.kind {
            MmapMutKind::Empty => Ok(()),
            MmapMutKind::Kernel(_) => advice.to_kernel(&range),
            MmapMutKind::Writable(file) => file.advise(self.managed(), range, advice),
            MmapMutKind::Managed(private) => private.advise(self.managed(), range, advice),
        }
    }

    /// Gives all of it away, or up.
    ///
    /// # Safety
    /// As for memmap2: what was written may change. Nobody relies on it.
    pub unsafe fn unchecked_advise(&self, advice: UncheckedAdvice) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.unchecked_advise_range(advice, 0, self.len) }
    }

    /// Gives a range away, or up, by whole pages.
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
        match &self.kind {
            MmapMutKind::Empty => Ok(()),
            MmapMutKind::Kernel(_) => advice.to_kernel(&range),
            MmapMutKind::Writable(file) => file.unchecked_advise(range, advice),
            MmapMutKind::Managed(private) => {
                private.unchecked_advise(self.managed(), range, advice)
            }
        }
    }

    fn advised(&self, offset: usize, len: usize) -> Result<Range<usize>, FaultError> {
        let all = self.addresses(0..self.len)?;
        advised(&all, offset, len)
    }
}
