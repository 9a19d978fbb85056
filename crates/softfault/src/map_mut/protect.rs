//! `mprotect(2)`.

use super::{MmapMut, MmapMutKind};
use crate::range::whole_pages;
use core::ops::Range;
use softfault_engine::mm::Protection;
use std::io;

impl MmapMut {
    pub(crate) fn protect(&mut self, protection: Protection) -> io::Result<()> {
        self.addresses(0..self.len)?;
        let managed = self.engine.inner.managed();
        match &mut self.kind {
            MmapMutKind::Managed(private) => {
                private.protect(managed.expect("a managed map"), protection)
            }
            // One window is all maps' of the file: that nobody writes by this one the compiler sees to.
            MmapMutKind::Writable(_) => Ok(()),
            MmapMutKind::Kernel(map) => map.protect(protection.into()),
            MmapMutKind::Empty => Ok(()),
        }
    }

    /// The same of the pages of a part, by its offsets.
    pub(crate) fn protect_part(
        &self,
        part: Range<usize>,
        protection: Protection,
    ) -> io::Result<()> {
        let pages = whole_pages(&self.addresses(part)?);
        if pages.is_empty() {
            return Ok(());
        }
        match &self.kind {
            MmapMutKind::Managed(private) => {
                private.protect_part(self.managed(), &pages, protection)
            }
            MmapMutKind::Writable(_) => Err(io::ErrorKind::Unsupported.into()),
            MmapMutKind::Kernel(map) => map.protect_part(&pages, protection.into()),
            MmapMutKind::Empty => Ok(()),
        }
    }

    /// Lets the pages of a part, by its offsets, be zeros of this protection, whether they were unmapped or not.
    ///
    /// # Safety
    /// Nobody relies on what is there, and none of it is kept.
    pub(crate) unsafe fn renew_part(
        &self,
        part: Range<usize>,
        protection: Protection,
    ) -> io::Result<()> {
        let pages = whole_pages(&self.addresses(part)?);
        match &self.kind {
            // SAFETY: the caller vouches for it.
            MmapMutKind::Managed(private) if !pages.is_empty() => unsafe {
                private.renew(self.managed(), &pages, protection)
            },
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
