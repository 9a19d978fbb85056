//! A file on the simulated disk, as the engine reads it.

use super::disk::Disk;
use super::ring::{Medium, Ring};
use crate::world;
use softfault_engine::store::{Complete, Extent, Read, Reap, Store, StoreError};
use sync::Arc;

/// A file.
pub struct FileStore {
    disk: Arc<Disk>,
    ring: Arc<Ring>,
    number: u64,
    bytes: u64,
}

impl FileStore {
    /// File `number` of the disk, of so many bytes; its reads ahead go through
    /// `ring`.
    pub fn new(disk: &Arc<Disk>, ring: &Arc<Ring>, number: u64, bytes: u64) -> Self {
        Self {
            disk: disk.clone(),
            ring: ring.clone(),
            number,
            bytes,
        }
    }
}

impl Store for FileStore {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.bytes)
    }

    fn extent(&self, offset: u64) -> Result<Extent, StoreError> {
        let end = self.bytes.next_multiple_of(crate::job::PAGE);
        debug_assert!(offset < end);
        Ok(Extent::Data(0..end))
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        self.disk.pay(1, bytes);
        world::sleep_until_ns(self.disk.begin(bytes));
        // SAFETY: the caller's promise.
        unsafe {
            self.disk
                .fill(self.number, self.bytes, offset, buffer, bytes)
        }
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        self.ring.submit(&self.disk, self.number, self.bytes, reads)
    }

    fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        self.ring.reap(&*self.disk, cookie, complete, timeout_ns)
    }
}
