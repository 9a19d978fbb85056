//! Anonymous memory.

use super::{SoftEngine, clip};
use crate::FaultError;
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::mm::{Attributes, Backing, Protection};
use std::io;
use std::sync::Arc;

/// Anonymous memory: zeros until written. A page counts against the budget
/// from its first touch, and stays until the map is dropped.
pub struct SoftMapMut {
    pub(super) engine: SoftEngine,
    anon: Arc<Anonymous>,
    len: usize,
}

impl SoftMapMut {
    pub(super) fn new(engine: &SoftEngine, len: usize) -> io::Result<Self> {
        let no_memory =
            || io::Error::new(io::ErrorKind::OutOfMemory, "no room for another mapping");
        let managed = &engine.inner.managed;
        let anon = Anonymous::new(managed.node.clone(), len).map_err(|_| no_memory())?;
        let attributes = Attributes {
            backing: Backing::Anonymous(anon.clone()),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        let mapped = managed.space.mmap(anon.addresses(), attributes);
        mapped.map_err(|_| no_memory())?;
        Ok(Self {
            engine: engine.clone(),
            anon,
            len,
        })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of it that are in memory, by whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.anon.resident_pages() * PAGE_SIZE
    }

    /// Copies bytes out, starting at `offset`; returns how many there were.
    /// What other threads write meanwhile may be seen in part.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<usize, FaultError> {
        let addresses = clip(self.start(), self.len, offset, buffer.len());
        let count = addresses.len();
        let space = &self.engine.inner.managed.space;
        self.engine
            .read(space, addresses.start, &mut buffer[..count])?;
        Ok(count)
    }

    /// Copies bytes in, starting at `offset`; returns how many there was room
    /// for. Fails where the budget has none for a page, even once everything
    /// that can be evicted is.
    pub fn write_at(&self, bytes: &[u8], offset: usize) -> Result<usize, FaultError> {
        let addresses = clip(self.start(), self.len, offset, bytes.len());
        let count = addresses.len();
        let space = &self.engine.inner.managed.space;
        self.engine.write(space, addresses.start, &bytes[..count])?;
        Ok(count)
    }

    /// Where the engine's space, and each of its forks, shows the first byte.
    pub(super) fn start(&self) -> usize {
        self.anon.addresses().start
    }
}

impl core::fmt::Debug for SoftMapMut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftMapMut")
            .field("len", &self.len)
            .finish()
    }
}

impl Drop for SoftMapMut {
    fn drop(&mut self) {
        if crate::process::is_forked_child() {
            core::mem::forget(self.anon.clone());
            return;
        }
        let space = &self.engine.inner.managed.space;
        let unmapped = space.munmap(self.anon.addresses(), |_, _| {});
        assert!(unmapped.is_ok(), "unmapping a whole window needs no node");
    }
}
