//! The windows given back last: a fault of then may arrive now.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The windows given back last.
#[derive(Default)]
pub struct Released {
    slots: [ReleasedSlot; 8],
    next: AtomicUsize,
}

#[derive(Default)]
struct ReleasedSlot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Touches that were repeated because of it.
    repeated: AtomicUsize,
}

/// Touches repeated for one window: far more than there are late faults.
const REPEATS: usize = 4096;

impl Released {
    /// A window was given back.
    pub fn push(&self, range: &Range<usize>) {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()];
        slot.end.store(0, Ordering::Release);
        slot.start.store(range.start, Ordering::Release);
        slot.repeated.store(0, Ordering::Release);
        slot.end.store(range.end, Ordering::Release);
    }

    /// True if `addr` was in one of them: the touch is to be repeated. Only so
    /// often, so that a stray pointer does not loop.
    pub fn contains(&self, addr: usize) -> bool {
        self.slots.iter().any(|slot| {
            addr < slot.end.load(Ordering::Acquire)
                && slot.start.load(Ordering::Acquire) <= addr
                && slot.repeated.fetch_add(1, Ordering::Relaxed) < REPEATS
        })
    }
}
