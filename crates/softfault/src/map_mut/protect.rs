//! `mprotect(2)`: maps that are only read for a while.

use super::{Kind, MmapMut};
use crate::Mmap;
use softfault_engine::mm::Protection;
use std::io;

impl MmapMut {
    /// Lets it be read only: a write through a stray pointer raises SIGSEGV.
    /// [`Mmap::make_mut`] is the way back.
    pub fn make_read_only(mut self) -> io::Result<Mmap> {
        self.protect(Protection::Read)?;
        Ok(Mmap::of_private(self))
    }

    pub(crate) fn protect(&mut self, protection: Protection) -> io::Result<()> {
        self.addresses(0..self.len)?;
        let managed = self.engine.inner.managed();
        match &mut self.kind {
            Kind::Managed(private) => private.protect(managed.expect("a managed map"), protection),
            Kind::Kernel(map) => map.protect(protection),
            Kind::Empty => Ok(()),
        }
    }
}
