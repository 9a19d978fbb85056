//! `mprotect(2)`.

use super::{Kind, MmapMut};
use softfault_engine::mm::Protection;
use std::io;

impl MmapMut {
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
