//! Memory whose bytes are code.

use super::{MmapMut, MmapMutKind, make};
use crate::error;
use crate::kernel::{KernelAccess, MapSource};
use std::io;

impl MmapMut {
    /// Lets it be executed and read, and not be written to. What an engine has of it is copied to a mapping of the
    /// kernel's own before.
    pub(crate) fn into_code(mut self) -> io::Result<Self> {
        self.addresses(0..self.len)?;
        if let MmapMutKind::Writable(_) = self.kind {
            return Err(error::invalid(
                "a file that is written to over an engine cannot be executed: flush it, and use map_exec",
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
