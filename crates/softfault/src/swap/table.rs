//! Words for all slots, which cost memory only where they are used.

use super::clusters::parts;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// Slots that have their bits in one word.
pub(super) const BITS: u64 = u64::BITS as u64;

/// So many words, zeros at first.
pub(super) struct SlotWords {
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomics; they are given back only on drop.
unsafe impl Send for SlotWords {}
// SAFETY: as above.
unsafe impl Sync for SlotWords {}

impl SlotWords {
    /// `None` where the system has no memory.
    pub(super) fn new(count: usize) -> Option<Self> {
        let words = sync::pages::map(Self::bytes(count))?.cast();
        Some(Self { words, count })
    }

    fn bytes(count: usize) -> usize {
        let page = softfault_engine::PAGE_SIZE;
        (count.max(1) * size_of::<AtomicU64>()).next_multiple_of(page)
    }
}

impl core::ops::Deref for SlotWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: mapped for so many words, and zeros are valid ones.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for SlotWords {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody has a word any more.
        unsafe { sync::pages::unmap(self.words.cast(), Self::bytes(self.count)) };
    }
}

/// Bits of the words that stand for `slots`.
pub(super) fn words(slots: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    parts(slots, BITS).map(|part| {
        let count = part.end - part.start;
        let mask = u64::MAX >> (BITS - count) << (part.start % BITS);
        ((part.start / BITS) as usize, mask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_by_words() {
        let of = |slots| words(slots).collect::<Vec<_>>();
        assert_eq!(of(0..64), [(0, u64::MAX)]);
        assert_eq!(of(3..4), [(0, 8)]);
        assert_eq!(of(62..66), [(0, 3 << 62), (1, 3)]);
        assert_eq!(of(5..5), []);
    }
}
