//! `msync(2)` of a map that only reads: it is for the file, which other maps may have written to.

use super::{Mmap, MmapKind};
use crate::{FaultError, kernel};
use std::io;

impl Mmap {
    /// By `MS_SYNC` or `MS_ASYNC`, a part.
    pub(crate) fn msync(&self, offset: usize, len: usize, how: i32) -> io::Result<()> {
        let end = offset.checked_add(len).ok_or(FaultError::OutOfRange)?;
        let addresses = self.addresses(offset..end)?;
        match self.kind() {
            MmapKind::Managed(file) if file.cache().is_writable() => {
                let files = &self.engine.inner.files;
                let Some(writes) = files.writes_of(file.cache()) else {
                    return Ok(());
                };
                // Of failures before it this map has lost nothing.
                let mut seen = 0;
                let _ = file.write_error_since(&mut seen);
                files.msync((file.cache(), &writes), addresses, how);
                file.write_error_since(&mut seen)
            }
            MmapKind::Private(map) => map.msync(offset, len, how),
            MmapKind::Kernel(_) | MmapKind::Inherited => kernel::msync(&addresses, how),
            MmapKind::Managed(_) | MmapKind::Empty => Ok(()),
        }
    }
}
