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
            MmapMutKind::Empty | MmapMutKind::Gone => Ok(()),
        }
    }

    /// As above, for the pages of a part, given by its offsets.
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
            MmapMutKind::Empty | MmapMutKind::Gone => Ok(()),
        }
    }

    /// Makes the pages of a part zeros with this protection, mapped before or not. The part is given by its offsets.
    ///
    /// # Safety
    /// Nothing relies on the part's bytes, and none of its pages is kept.
    pub(crate) unsafe fn zero_part(
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
