//! A swap device under the test's control.

use crate::gate::Gate;
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Complete, Read, Reap, Store, StoreError};
use softfault_engine::swap::SwapDevice;
use std::ops::Range;
use sync::Arc;

type Page = [u8; PAGE_SIZE];

/// No page of a test is full of this: a read of a slot without contents
/// finds it.
pub const POISON: u8 = 0xDD;

/// Slots in memory. A read of a slot that was not written, or discarded since, or is
/// being written, finds [`POISON`]: swap read-ahead may ask for it, and
/// must not show it. Panics if two write to a slot at a time, or if a page
/// changes while it is written.
///
/// Faults that it can inject: reads and writes held back, or failing, a queue that takes only so many.
pub struct TestSwap {
    gate: Gate<Slots>,
    slots: usize,
}

struct Slots {
    slots: Vec<Slot>,
    /// The next so many fail, with this errno.
    failing_reads: (usize, i32),
    failing_writes: (usize, i32),
    counts: SwapCounts,
}

#[derive(Default)]
struct Slot {
    /// None if nobody may ask for it.
    page: Option<Box<Page>>,
    is_written: bool,
}

/// The requests to a swap device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwapCounts {
    /// Reads, well or not.
    pub reads: usize,
    /// Writes, well or not.
    pub writes: usize,
    /// Pages of them.
    pub pages_written: usize,
    /// Pages that were read and have no bytes.
    pub poisoned: usize,
}

fn pages_of(offset: u64, bytes: usize) -> Range<usize> {
    let start = offset as usize / PAGE_SIZE;
    assert!((offset as usize).is_multiple_of(PAGE_SIZE));
    start..start + bytes / PAGE_SIZE
}

impl TestSwap {
    /// So many slots, read in the calling thread only.
    pub fn new(slots: usize) -> Arc<Self> {
        Self::with_queue(slots, 0)
    }

    /// The same, which takes `queue` asynchronous reads at a time.
    pub fn with_queue(slots: usize, queue: usize) -> Arc<Self> {
        let state = Slots {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            failing_reads: (0, 0),
            failing_writes: (0, 0),
            counts: SwapCounts::default(),
        };
        let gate = Gate::new(state, queue);
        Arc::new(Self { gate, slots })
    }

    /// Holds back all reads and writes that have not ended.
    pub fn close(&self) {
        self.gate.close();
    }

    /// Lets all of them end.
    pub fn open(&self) {
        self.gate.open();
    }

    /// Lets so many end although the device is closed.
    pub fn release(&self, count: usize) {
        self.gate.release(count);
    }

    /// Waits until `count` reads and writes are held back.
    pub fn wait_blocked(&self, count: usize) {
        self.gate.wait_blocked(count);
    }

    /// The next so many reads fail.
    pub fn fail_reads(&self, reads: usize, errno: i32) {
        self.gate
            .change(|state| state.failing_reads = (reads, errno));
    }

    /// The next so many writes fail.
    pub fn fail_writes(&self, writes: usize, errno: i32) {
        self.gate
            .change(|state| state.failing_writes = (writes, errno));
    }

    /// The requests so far.
    pub fn counts(&self) -> SwapCounts {
        self.gate.lock().counts
    }

    /// Slots that have bytes.
    pub fn written(&self) -> usize {
        let state = self.gate.lock();
        state
            .slots
            .iter()
            .filter(|slot| slot.page.is_some())
            .count()
    }
}

impl Slots {
    /// The errno that a read or write fails with.
    fn failure((left, errno): &mut (usize, i32)) -> Result<(), StoreError> {
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(StoreError::Io(*errno))
    }

    /// Does a read.
    ///
    /// # Safety
    /// As for [`Store::read`].
    unsafe fn fill(
        &mut self,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, StoreError> {
        self.counts.reads += 1;
        let failure = Self::failure(&mut self.failing_reads);
        for (nth, slot) in pages_of(offset, bytes).enumerate() {
            let slot = &self.slots[slot];
            let page = slot.page.as_ref().filter(|_| !slot.is_written);
            self.counts.poisoned += usize::from(page.is_none());
            // A caller that shows the pages of a failed read is found out.
            let page = page.filter(|_| failure.is_ok());
            let page = page.map_or(&[POISON; PAGE_SIZE], |page| page);
            // SAFETY: within the buffer, which the caller lends.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    page.as_ptr(),
                    buffer.add(nth * PAGE_SIZE),
                    PAGE_SIZE,
                );
            }
        }
        failure.map(|()| bytes)
    }
}

/// The bytes of a page that nobody writes to.
///
/// # Safety
/// It is readable.
unsafe fn bytes_of(page: *const u8) -> Box<Page> {
    let mut bytes = Box::new([0; PAGE_SIZE]);
    // SAFETY: the caller's promise; by words, since a thread that writes to it although
    // it must not is to be found out, and nothing worse.
    unsafe { sync::bytes::load(page, bytes.as_mut_ptr(), PAGE_SIZE) };
    bytes
}

impl Store for TestSwap {
    fn len(&self) -> Result<u64, StoreError> {
        Ok((self.slots * PAGE_SIZE) as u64)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let mut state = self.gate.pass(|_| {});
        // SAFETY: the caller's promise.
        unsafe { state.fill(offset, buffer, bytes) }
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        self.gate.submit(reads, |_, _| {})
    }

    fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        self.gate.reap(cookie, complete, timeout_ns, |state, read| {
            // SAFETY: lent until the completion, which is next.
            unsafe { state.fill(read.offset, read.buffer, read.bytes) }
        })
    }
}

impl SwapDevice for TestSwap {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        let slots = pages_of(offset, pages.len() * PAGE_SIZE);
        // SAFETY: the caller's promise.
        let copies = || pages.iter().map(|&page| unsafe { bytes_of(page) });
        let before: Vec<_> = copies().collect();
        let mut state = self.gate.pass(|state| {
            for slot in &mut state.slots[slots.clone()] {
                assert!(!slot.is_written, "two write to a slot at a time");
                slot.is_written = true;
                slot.page = None;
            }
        });
        state.counts.writes += 1;
        state.counts.pages_written += pages.len();
        let failure = Slots::failure(&mut state.failing_writes);
        drop(state);
        let after: Vec<_> = copies().collect();
        assert!(
            before == after,
            "a page changed while it was written to swap"
        );
        self.gate.change(|state| {
            for (slot, page) in state.slots[slots].iter_mut().zip(after) {
                slot.is_written = false;
                slot.page = failure.is_ok().then_some(page);
            }
        });
        failure
    }

    fn discard(&self, range: Range<u64>) {
        let slots = pages_of(range.start, (range.end - range.start) as usize);
        self.gate.change(|state| {
            for slot in &mut state.slots[slots] {
                assert!(!slot.is_written, "a slot is discarded while it is written");
                slot.page = None;
            }
        });
    }
}
