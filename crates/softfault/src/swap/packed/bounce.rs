//! Memory that packed bytes are read into, before they become pages.
//!
//! Half of it is for reads that a thread waits for; it waits for its turn too. The
//! other half is for reads ahead, which begin only where there is some: they keep
//! it until somebody reaps them.

use super::plan::{MOST_PAGES, Plan};
use crate::store::{Finish, LastStep};
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::StoreError;
use sync::wait::WaitWord;

/// Buffers of each half.
const EACH: u32 = u32::BITS;
/// Bytes of a buffer: of the pages, with the alignment of both ends.
const BYTES: usize = (MOST_PAGES + 2) * PAGE_SIZE;
const MEMORY: usize = 2 * EACH as usize * BYTES;

/// The buffers of a device.
pub(in super::super) struct Bounces {
    memory: NonNull<u8>,
    /// A bit a buffer that is free, of those for reads that are waited for.
    waited: WaitWord,
    /// The same of those for reads ahead.
    ahead: AtomicU32,
    /// The plans of reads into the latter, and where their pages go. Each belongs to
    /// the holder of the buffer.
    plans: [UnsafeCell<Option<(Plan, *mut u8)>>; EACH as usize],
}

// SAFETY: a buffer and its plan are used by one thread at a time, which took it.
unsafe impl Send for Bounces {}
// SAFETY: as above.
unsafe impl Sync for Bounces {}

/// A buffer of a read ahead.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Ahead(u32);

impl Bounces {
    /// `None` where the system has no memory.
    pub(in super::super) fn new() -> Option<Self> {
        Some(Self {
            memory: sync::pages::map(MEMORY)?,
            waited: WaitWord::new(u32::MAX),
            ahead: AtomicU32::new(u32::MAX),
            plans: [const { UnsafeCell::new(None) }; EACH as usize],
        })
    }

    fn buffer(&self, index: u32) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(index as usize * BYTES)
    }

    /// Runs `use_it` with a buffer, which nobody else has meanwhile. Waits for one.
    pub(in super::super) fn with<T>(&self, use_it: impl FnOnce(&mut [u8]) -> T) -> T {
        let index = loop {
            if let Some(index) = take(&self.waited) {
                break index;
            }
            self.waited.wait(0, None);
        };
        // SAFETY: within the memory, and taken.
        let buffer = unsafe { core::slice::from_raw_parts_mut(self.buffer(index), BYTES) };
        let result = use_it(buffer);
        // Release pairs with the Acquire in `take`.
        if self.waited.fetch_or(1 << index, Release) == 0 {
            // All waiters: the next threads that gave one back saw a free one, and did
            // not wake.
            self.waited.wake(u32::MAX);
        }
        result
    }

    /// A buffer for the bytes of `plan`, whose pages go to `target`. `None` if all
    /// are in use.
    ///
    /// # Safety
    /// The target has room for the plan's pages, and is this read's until its [last step](Self::then) was done, or was
    /// [taken back](Self::take_back).
    pub(in super::super) unsafe fn ahead(&self, plan: Plan, target: *mut u8) -> Option<Ahead> {
        let index = take(&self.ahead)?;
        // SAFETY: taken, so nobody else looks.
        unsafe { *self.plans[index as usize].get() = Some((plan, target)) };
        Some(Ahead(index))
    }

    /// Where to read into.
    pub(in super::super) fn buffer_of(&self, ahead: Ahead) -> *mut u8 {
        self.buffer(EACH + ahead.0)
    }

    /// The work to do when the read is over.
    pub(in super::super) fn then(&self, ahead: Ahead) -> LastStep {
        LastStep::new(self, ahead.0)
    }

    /// Gives the buffer of a read back that was not begun.
    pub(in super::super) fn take_back(&self, then: Option<LastStep>) {
        if let Some(then) = then {
            self.give_up(Ahead(then.number()));
        }
    }

    /// Makes the pages from the bytes read.
    fn unpack(&self, ahead: Ahead) -> Result<usize, i32> {
        // SAFETY: the caller has the buffer.
        let plan = unsafe { *self.plans[ahead.0 as usize].get() };
        let (plan, target) = plan.expect("it was taken for one");
        let bytes = plan.pages() * PAGE_SIZE;
        // SAFETY: within the memory, and taken.
        let fetched = unsafe { core::slice::from_raw_parts(self.buffer(EACH + ahead.0), BYTES) };
        // SAFETY: lent to the read until this, as the caller of `ahead` says.
        let pages = unsafe { core::slice::from_raw_parts_mut(target, bytes) };
        plan.unpack(fetched, pages).map(|()| bytes)
    }

    /// Gives a buffer back.
    fn give_up(&self, ahead: Ahead) {
        // Release pairs with the Acquire in `take`.
        self.ahead.fetch_or(1 << ahead.0, Release);
    }
}

impl Finish for Bounces {
    fn finish(&self, number: u32, result: Result<usize, StoreError>) -> Result<usize, StoreError> {
        let ahead = Ahead(number);
        let result = result.and_then(|_| self.unpack(ahead).map_err(StoreError::Io));
        self.give_up(ahead);
        result
    }
}

/// Takes a buffer that is free; the lowest, so that few are ever resident.
fn take(free: &AtomicU32) -> Option<u32> {
    // Acquire pairs with the Release of the thread that gave it back.
    let before = free.fetch_update(Acquire, Relaxed, |free| {
        (free != 0).then(|| free & (free - 1))
    });
    before.ok().map(u32::trailing_zeros)
}

impl Drop for Bounces {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody has a buffer any more.
        unsafe { sync::pages::unmap(self.memory, MEMORY) };
    }
}
