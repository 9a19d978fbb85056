//! Ghosts: which pages were evicted a short while ago.
//!
//! A folio that comes back before as many pages were evicted as the mapped
//! lists hold would have stayed if they had been kept in order of use: it is
//! part of the working set and goes to the active list. This is the refault
//! distance of Linux's `mm/workingset.c`, kept in a table of fixed size:
//! a fingerprint and the eviction clock in eight bytes, the newest of two
//! neighbours winning over the older.

use core::ptr::NonNull;
use sync::atomic::{AtomicU64, Ordering};

/// The table of ghosts.
pub struct Ghosts {
    slots: NonNull<AtomicU64>,
    /// A power of two, minus one.
    mask: usize,
    /// Pages evicted so far.
    clock: AtomicU64,
}

// SAFETY: the slots are atomics; the table is given back only on drop.
unsafe impl Send for Ghosts {}
// SAFETY: as above.
unsafe impl Sync for Ghosts {}

impl Ghosts {
    /// A table for the evictions of a budget of `pages`. `None` where the
    /// system has no memory.
    pub fn new(pages: usize) -> Option<Self> {
        let count = pages.next_power_of_two().max(512);
        Some(Self {
            slots: sync::pages::map(count * size_of::<AtomicU64>())?.cast(),
            mask: count - 1,
            clock: AtomicU64::new(0),
        })
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        (self.mask + 1) * size_of::<AtomicU64>()
    }

    fn slot(&self, addr: usize) -> (&AtomicU64, &AtomicU64, u32) {
        let hash = (addr as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = (hash >> 20) as usize & self.mask;
        // SAFETY: the mask keeps both places inside the table; zeroed memory
        // is a valid empty slot.
        let (one, other) = unsafe {
            (
                self.slots.add(place).as_ref(),
                self.slots.add(place ^ 1).as_ref(),
            )
        };
        // Never 0, which marks an empty slot.
        (one, other, (hash >> 32) as u32 | 1)
    }

    /// Remembers that the folio at `addr` was evicted. Only a hint: racing
    /// threads may lose one.
    pub fn remember(&self, addr: usize, pages: usize) {
        let now = self.clock.fetch_add(pages as u64, Ordering::Relaxed) as u32;
        let (one, other, print) = self.slot(addr);
        let age = |slot: u64| now.wrapping_sub(slot as u32);
        let (first, second) = (one.load(Ordering::Relaxed), other.load(Ordering::Relaxed));
        let older = if first == 0 || (second != 0 && age(first) >= age(second)) {
            one
        } else {
            other
        };
        older.store((print as u64) << 32 | now as u64, Ordering::Relaxed);
    }

    /// Pages evicted since `addr` was, if that is remembered; forgets it.
    pub fn recall(&self, addr: usize) -> Option<u32> {
        let (one, other, print) = self.slot(addr);
        [one, other].into_iter().find_map(|place| {
            let slot = place.load(Ordering::Relaxed);
            if (slot >> 32) as u32 != print {
                return None;
            }
            place.store(0, Ordering::Relaxed);
            Some((self.clock.load(Ordering::Relaxed) as u32).wrapping_sub(slot as u32))
        })
    }
}

impl Drop for Ghosts {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody else has the table any more.
        unsafe { sync::pages::unmap(self.slots.cast(), self.bytes()) };
    }
}
