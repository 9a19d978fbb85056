//! A swap device that fails when a test wants it to: around a real one.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use softfault::{Compression, SwapFile};
use softfault_engine::store::{Extent, Store, StoreError};
use softfault_engine::swap::SwapDevice;

use super::{disk, swap_file};

/// The fault to inject into a verb.
#[derive(Default)]
pub struct Verb {
    /// The error of every call, if not 0.
    errno: AtomicI32,
    /// Calls that began.
    pub calls: AtomicU64,
    /// Calls that wait.
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    hangs: bool,
    waiting: usize,
    /// Times that hanging calls were released.
    released: u64,
}

impl Verb {
    /// Fails from now on; 0: no more.
    pub fn fail(&self, errno: i32) {
        self.errno.store(errno, SeqCst);
    }

    /// Calls that begin from now on hang until [`release`](Self::release).
    pub fn hang(&self) {
        self.held.lock().unwrap().hangs = true;
    }

    /// Waits until a call hangs.
    pub fn wait_for_one(&self) {
        let held = self.held.lock().unwrap();
        drop(
            self.changed
                .wait_while(held, |held| held.waiting == 0)
                .unwrap(),
        );
    }

    /// Calls that hang now.
    pub fn waiting(&self) -> usize {
        self.held.lock().unwrap().waiting
    }

    /// Calls that begin from now on do not hang; those that do, still do.
    pub fn pass(&self) {
        self.held.lock().unwrap().hangs = false;
    }

    pub fn release(&self) {
        let mut held = self.held.lock().unwrap();
        held.hangs = false;
        held.released += 1;
        self.changed.notify_all();
    }

    fn call(&self) -> Result<(), StoreError> {
        self.calls.fetch_add(1, SeqCst);
        let mut held = self.held.lock().unwrap();
        if held.hangs {
            held.waiting += 1;
            self.changed.notify_all();
            let before = held.released;
            held = self
                .changed
                .wait_while(held, |held| held.released == before)
                .unwrap();
            held.waiting -= 1;
        }
        drop(held);
        match self.errno.load(SeqCst) {
            0 => Ok(()),
            errno => Err(StoreError::Io(errno)),
        }
    }
}

/// The device.
pub struct Failing {
    file: SwapFile,
    pub reads: Verb,
    pub writes: Verb,
    /// Reads bring so many bytes less than asked.
    pub short: AtomicU64,
}

impl Failing {
    pub fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            file: swap_file(disk(), slots, Compression::None),
            reads: Verb::default(),
            writes: Verb::default(),
            short: AtomicU64::new(0),
        })
    }
}

impl Store for Failing {
    fn len(&self) -> Result<u64, StoreError> {
        self.file.len()
    }

    fn extent(&self, offset: u64) -> Result<Extent, StoreError> {
        self.file.extent(offset)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        self.reads.call()?;
        // SAFETY: the caller's promise.
        let arrived = unsafe { self.file.read(offset, buffer, bytes) }?;
        let short = self.short.load(SeqCst) as usize;
        // SAFETY: within the buffer.
        unsafe { buffer.add(arrived - short).write_bytes(0xEE, short) };
        Ok(arrived - short)
    }
}

impl SwapDevice for Failing {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        self.writes.call()?;
        // SAFETY: the caller's promise.
        unsafe { self.file.write(offset, pages) }
    }

    fn discard(&self, range: Range<u64>) {
        self.file.discard(range);
    }
}
