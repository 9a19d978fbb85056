//! Memory whose bytes are code.

use super::{MmapMut, MmapMutKind, make};
use crate::error;
use crate::kernel::{KernelAccess, MapSource};
use std::io;

impl MmapMut {
    /// Makes the map executable and readable, and no longer writable. Memory that an engine serves is first copied to a
    /// mapping of the kernel.
    pub(crate) fn into_code(mut self) -> io::Result<Self> {
        self.addresses(0..self.len)?;
        if let MmapMutKind::Writable(_) = self.kind {
            return Err(error::invalid(
                "a map that writes to its file over an engine cannot be executed: flush it, and map the file with map_exec",
            ));
        }
        if self.is_managed() {
            self = self.copied_to_kernel()?;
        }
        if let MmapMutKind::Kernel(map) = &self.kind {
            map.protect(KernelAccess::ReadExec)?;
        }
        Ok(self)
    }

    fn copied_to_kernel(self) -> io::Result<Self> {
        let (of, access) = (MapSource::Nothing(0), KernelAccess::ReadWrite);
        let mut own = Self::new(&self.engine, make::special(of, self.len, access)?);
        self.read_at(&mut own, 0)?;
        Ok(own)
    }
}
