//! The ranges that were given back last, or changed in place: a fault of then may arrive now.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The last ranges of a kind.
pub struct Released {
    /// So many of them that no stack is to have them, which may be a small one.
    slots: Box<[ReleasedSlot]>,
    next: AtomicUsize,
}

struct ReleasedSlot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Touches that were repeated because of it.
    repeated: AtomicUsize,
}

/// Ranges that are remembered. A thread whose touch was a fault may not run for a while, before its handler's first line, and a program
/// may map many files meanwhile, each of which changes as it is given to the kernel.
const SLOTS: usize = 512;
/// Touches repeated for one range: far more than there are late faults.
const REPEATS: usize = 4096;

impl ReleasedSlot {
    const fn empty() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            repeated: AtomicUsize::new(0),
        }
    }
}

impl Default for Released {
    fn default() -> Self {
        Self {
            slots: core::iter::repeat_with(ReleasedSlot::empty)
                .take(SLOTS)
                .collect(),
            next: AtomicUsize::new(0),
        }
    }
}

impl Released {
    /// It is one of them.
    pub fn push(&self, range: &Range<usize>) {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::AcqRel) % SLOTS];
        slot.end.store(0, Ordering::Release);
        slot.start.store(range.start, Ordering::Release);
        slot.repeated.store(0, Ordering::Release);
        slot.end.store(range.end, Ordering::Release);
    }

    /// How many there were so far.
    pub fn count(&self) -> usize {
        self.next.load(Ordering::Acquire)
    }

    /// True if there were so many since then that not all of them are remembered.
    pub fn has_forgotten_since(&self, count: usize) -> bool {
        self.count().wrapping_sub(count) >= SLOTS
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_known_to_be() {
        let released = Released::default();
        let range = |at: usize| at * 4096..(at + 1) * 4096;
        released.push(&range(1));
        let before = released.count();
        for at in 2..SLOTS + 1 {
            released.push(&range(at));
        }
        assert!(released.contains(4096) && released.contains(SLOTS * 4096));
        assert!(!released.contains((SLOTS + 1) * 4096));
        assert!(!released.has_forgotten_since(before));
        released.push(&range(SLOTS + 1));
        assert!(!released.contains(4096), "the first is overwritten");
        assert!(released.has_forgotten_since(before));
        assert!(!released.has_forgotten_since(released.count()));
    }

    #[test]
    fn a_stray_pointer_does_not_loop() {
        let released = Released::default();
        released.push(&(4096..8192));
        assert_eq!(
            (0..).take_while(|_| released.contains(4096)).count(),
            REPEATS
        );
    }
}
