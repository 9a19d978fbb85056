//! Ghosts: which pages were evicted a short while ago.
//!
//! A folio that comes back before as many pages were evicted as the mapped
//! lists hold would have stayed if they had been kept in order of use: it is
//! part of the working set and goes to the active list. This is the refault
//! distance of Linux's `mm/workingset.c`, kept in a table of fixed size:
//! a fingerprint and the eviction clock in eight bytes, the newest of two
//! neighbours winning over the older.

use sync::atomic::{AtomicU64, Ordering};

/// The table of ghosts.
pub struct Ghosts {
    /// As many as a power of two; 0 is an empty one.
    slots: Box<[AtomicU64]>,
    /// Pages evicted so far.
    clock: AtomicU64,
}

impl Ghosts {
    /// A table for the evictions of a budget of `pages`. `None` where there is no
    /// memory for it.
    pub fn new(pages: usize) -> Option<Self> {
        let count = pages.checked_next_power_of_two()?.max(512);
        Some(Self {
            slots: sync::zeros::table(count)?,
            clock: AtomicU64::new(0),
        })
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    fn slot(&self, addr: usize) -> (&AtomicU64, &AtomicU64, u32) {
        let hash = (addr as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = (hash >> 20) as usize & (self.slots.len() - 1);
        let (one, other) = (&self.slots[place], &self.slots[place ^ 1]);
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
