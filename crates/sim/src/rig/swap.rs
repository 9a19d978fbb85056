//! Swap on the simulated disk: its queue, latency and bandwidth are those of the
//! files.
//!
//! A vectored write is one request of its size. Of each page its first word is
//! kept: the rest is nobody's to look at, as with files.
//!
//! Faults that it injects: slots that are bad for the whole run, drawn from the
//! seed. They can be written; a read with one of them in it fails as a whole.

use super::disk::{Disk, EIO};
use super::ring::{Medium, Ring};
use crate::job::PAGE;
use crate::world;
use softfault_engine::store::{Complete, Read, Reap, Store, StoreError};
use softfault_engine::swap::SwapDevice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sync::Arc;

/// The number of the swap file, above those of all others.
const FILE: u64 = 1 << 40;

/// Swap.
pub struct SwapDisk {
    disk: Arc<Disk>,
    /// One for the device, as in the product.
    ring: Ring,
    bytes: u64,
    /// The first words of the slots, as far as they were written. On no line of
    /// the processors: a real lock, never held over an operation of the façade.
    words: Mutex<Vec<u64>>,
}

impl SwapDisk {
    /// So many bytes of `disk`.
    pub fn new(disk: &Arc<Disk>, bytes: u64) -> Self {
        Self {
            disk: disk.clone(),
            ring: Ring::new(),
            bytes,
            words: Mutex::default(),
        }
    }

    fn words(&self) -> MutexGuard<'_, Vec<u64>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for SwapDisk {
    unsafe fn fill(
        &self,
        file: u64,
        length: u64,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, StoreError> {
        assert!(offset + bytes as u64 <= length, "a read past the last slot");
        let slots = offset / PAGE..(offset + bytes as u64) / PAGE;
        if slots.clone().any(|slot| self.disk.is_bad(file, slot)) {
            return Err(StoreError::Io(EIO));
        }
        let words = self.words();
        for slot in slots {
            let at = (slot * PAGE - offset) as usize;
            // A slot that was never written is not read.
            let word = words[slot as usize];
            // SAFETY: the first word of a page within the buffer, which is
            // aligned as pages are.
            unsafe { buffer.add(at).cast::<u64>().write(word) };
        }
        Ok(bytes)
    }
}

impl Store for SwapDisk {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.bytes)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        self.disk.pay(1, bytes);
        world::sleep_until_ns(self.disk.begin(bytes));
        // SAFETY: the caller's promise.
        unsafe { self.fill(FILE, self.bytes, offset, buffer, bytes) }
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        self.ring.submit(&self.disk, FILE, self.bytes, reads)
    }

    fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        self.ring.reap(self, cookie, complete, timeout_ns)
    }
}

impl SwapDevice for SwapDisk {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        let bytes = pages.len() * PAGE as usize;
        self.disk.pay(1, bytes);
        world::sleep_until_ns(self.disk.begin(bytes));
        let first = (offset / PAGE) as usize;
        let mut words = self.words();
        let end = first + pages.len();
        if words.len() < end {
            words.resize(end, 0);
        }
        for (word, page) in words[first..end].iter_mut().zip(pages) {
            // The bytes as they are when the request is over: a page that was
            // written to meanwhile would show.
            // SAFETY: the caller's promise; pages are aligned.
            *word = unsafe { page.cast::<u64>().read() };
        }
        Ok(())
    }
}
