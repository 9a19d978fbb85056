//! `mlock(2)`.

use super::{Mmap, MmapKind};
use crate::file_map::FilePin;
use crate::kernel::lock_by_kernel;
use std::io;
use std::sync::{MutexGuard, PoisonError};

impl Mmap {
    /// Brings the whole map into memory, where it stays until [`unlock`](Self::unlock). Up to
    /// half of the budget can be locked or pinned; a map of a file is charged like a [`pin`](Self::pin). Pages that the
    /// kernel serves are locked by mlock(2), and count towards its limit, `RLIMIT_MEMLOCK`: those of small files, and those of a file that
    /// cannot be taken over because another map of it is pinned, or writes to it.
    pub fn lock(&self) -> io::Result<()> {
        let addresses = self.addresses(0..self.len)?;
        match self.kind() {
            MmapKind::Managed(file) => {
                let mut locked = self.locked();
                if locked.is_none() {
                    *locked = Some(file.lock(self.managed(), addresses)?);
                }
                Ok(())
            }
            MmapKind::Private(map) => map.lock(),
            MmapKind::Kernel(map) => map.lock(true),
            MmapKind::Inherited => lock_by_kernel(&addresses, true),
            MmapKind::Empty => Ok(()),
        }
    }

    /// Lets the pages be evicted again.
    pub fn unlock(&self) -> io::Result<()> {
        let addresses = self.addresses(0..self.len)?;
        match self.kind() {
            MmapKind::Managed(file) => {
                if let Some(pin) = self.locked().take() {
                    file.unpin(addresses, pin);
                }
                Ok(())
            }
            MmapKind::Private(map) => map.unlock(),
            MmapKind::Kernel(map) => map.lock(false),
            MmapKind::Inherited => lock_by_kernel(&addresses, false),
            MmapKind::Empty => Ok(()),
        }
    }

    /// True if the map is of a file, and is locked in this process.
    pub(super) fn is_locked(&self) -> bool {
        matches!(self.kind(), MmapKind::Managed(_)) && self.locked().is_some()
    }

    fn locked(&self) -> MutexGuard<'_, Option<FilePin>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the length. A locked map is locked again, as far as the budget goes.
    pub(super) fn resize(&mut self, len: usize) {
        let was_locked = self.is_locked();
        let _ = self.unlock();
        self.len = len;
        if was_locked {
            let _ = self.lock();
        }
    }
}
