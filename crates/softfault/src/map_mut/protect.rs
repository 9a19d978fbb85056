//! `mprotect(2)`.

use super::{MmapMut, MmapMutKind};
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
}
