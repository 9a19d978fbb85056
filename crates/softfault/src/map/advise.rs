//! `madvise(2)`.

use super::{Kind, Mmap};
use crate::range::advised;
use crate::{Advice, FaultError, UncheckedAdvice, error, faults, signal};
use core::ops::Range;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, Populated};
use softfault_engine::{PAGE_SIZE, mm};
use std::io;
use std::sync::Arc;

impl Mmap {
    /// Says what to expect of all accesses.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.advise_range(advice, 0, self.len)
    }

    /// Says what to expect of accesses to a range. Another map of the same file
    /// in the same engine shares the advice, unless either is private.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        faults::get_in_front();
        if let Kind::Private(map) = &self.kind {
            return map.advise_range(advice, offset, len);
        }
        let range = self.advised(offset, len)?;
        match &self.kind {
            Kind::Kernel(_) => advice.to_kernel(&range),
            Kind::Managed(cache) if !range.is_empty() => self.advise_file(cache, range, advice),
            _ => Ok(()),
        }
    }

    /// Gives all of it away, or up.
    ///
    /// # Safety
    /// As for memmap2: bytes may change. Nobody relies on them.
    pub unsafe fn unchecked_advise(&self, advice: UncheckedAdvice) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.unchecked_advise_range(advice, 0, self.len) }
    }

    /// Gives a range away, or up. A file's pages that are not needed are forgotten, as
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
        if let Kind::Private(map) = &self.kind {
            // SAFETY: the caller vouches for it.
            return unsafe { map.unchecked_advise_range(advice, offset, len) };
        }
        let range = self.advised(offset, len)?;
        match (&self.kind, advice) {
            (Kind::Kernel(_), advice) => advice.to_kernel(&range),
            (Kind::Managed(_), UncheckedAdvice::DontNeed) if self.is_locked() => {
                Err(error::mm(mm::MmError::Locked))
            }
            (Kind::Managed(cache), UncheckedAdvice::DontNeed) => {
                let _masked = signal::masked();
                cache.invalidate(range);
                Ok(())
            }
            (Kind::Managed(_), UncheckedAdvice::Free) => Err(error::mm(mm::MmError::NotAnonymous)),
            _ => Ok(()),
        }
    }

    fn advised(&self, offset: usize, len: usize) -> Result<Range<usize>, FaultError> {
        let all = self.addresses(0..self.len)?;
        advised(&all, offset, len)
    }

    fn advise_file(
        &self,
        cache: &Arc<PageCache>,
        range: Range<usize>,
        advice: Advice,
    ) -> io::Result<()> {
        let advice = match advice {
            Advice::Normal => mm::Advice::Normal,
            Advice::Random => mm::Advice::Random,
            Advice::Sequential => mm::Advice::Sequential,
            Advice::WillNeed => {
                let _masked = signal::masked();
                fault::prefetch(cache, range);
                return Ok(());
            }
            Advice::Cold => return Ok(()),
            Advice::PageOut => {
                let _masked = signal::masked();
                cache.invalidate(range);
                return Ok(());
            }
            Advice::PopulateRead => return Ok(self.populate(range)?),
            Advice::PopulateWrite => return Err(FaultError::ReadOnly.into()),
        };
        let pages = range.start & !(PAGE_SIZE - 1)..range.end.next_multiple_of(PAGE_SIZE);
        let _masked = signal::masked();
        let managed = self.engine.inner.managed().expect("a managed map");
        managed.space.madvise(pages, advice).map_err(error::mm)
    }

    /// Brings the pages of some addresses of a file in.
    fn populate(&self, mut rest: Range<usize>) -> Result<(), FaultError> {
        let space = &self.engine.inner.managed().expect("a managed map").space;
        let mut masked = signal::masked();
        loop {
            match fault::populate(space, rest.clone(), false, &masked.pending()) {
                Populated::Done => return Ok(()),
                Populated::Interrupted(at) => rest.start = at,
                Populated::Failed(_, error) => return Err(error.into()),
            }
            masked = masked.deliver_pending();
        }
    }
}
