//! `madvise(2)`.

use super::{Mmap, MmapKind};
use crate::advice::{Advice, UncheckedAdvice};
use crate::error::{self, FaultError};
use crate::faults;
use crate::range::advised;
use core::ops::Range;
use softfault_engine::mm::MmError;
use std::io;

impl Mmap {
    /// Gives advice about all accesses to the map.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.advise_range(advice, 0, self.len)
    }

    /// Gives advice about accesses to a range. Other maps of the same file in the same engine share it until the last of them is
    /// dropped. Private maps have advice of their own; but `Random` about half of a file or more is about all reads of it.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        faults::reinstall_handler();
        if let MmapKind::Private(map) = &self.kind {
            return map.advise_range(advice, offset, len);
        }
        let range = self.advised(offset, len)?;
        match self.kind() {
            MmapKind::Kernel(_) | MmapKind::Inherited => advice.to_kernel(&range),
            MmapKind::Managed(file) if !range.is_empty() => {
                file.advise(self.managed(), range, advice)
            }
            _ => Ok(()),
        }
    }

    /// Gives advice that may change bytes, for the whole map.
    ///
    /// # Safety
    /// As for memmap2: bytes may change. Nothing may rely on them.
    pub unsafe fn unchecked_advise(&self, advice: UncheckedAdvice) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.unchecked_advise_range(advice, 0, self.len) }
    }

    /// Gives advice that may change bytes, for a range. With [`UncheckedAdvice::DontNeed`] a file's pages are dropped, as
    /// by [`invalidate`](Self::invalidate): the next touch reads them again.
    ///
    /// # Safety
    /// See [`unchecked_advise`](Self::unchecked_advise).
    pub unsafe fn unchecked_advise_range(
        &self,
        advice: UncheckedAdvice,
        offset: usize,
        len: usize,
    ) -> io::Result<()> {
        if let MmapKind::Private(map) = &self.kind {
            // SAFETY: the caller vouches for it.
            return unsafe { map.unchecked_advise_range(advice, offset, len) };
        }
        let range = self.advised(offset, len)?;
        match (self.kind(), advice) {
            (MmapKind::Kernel(_) | MmapKind::Inherited, advice) => advice.to_kernel(&range),
            (MmapKind::Managed(_), UncheckedAdvice::DontNeed) if self.is_locked() => {
                Err(error::mm(MmError::Locked))
            }
            (MmapKind::Managed(file), UncheckedAdvice::DontNeed) => {
                file.invalidate(range);
                Ok(())
            }
            (MmapKind::Managed(_), UncheckedAdvice::Free) => Err(error::mm(MmError::NotAnonymous)),
            (MmapKind::Managed(_), UncheckedAdvice::Remove) => Err(FaultError::ReadOnly.into()),
            _ => Ok(()),
        }
    }

    fn advised(&self, offset: usize, len: usize) -> Result<Range<usize>, FaultError> {
        let all = self.addresses(0..self.len)?;
        advised(&all, offset, len)
    }
}
