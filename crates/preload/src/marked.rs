//! Where something was taken, in units of 2 MiB: one bit each, looked at by every hook.
//!
//! Bits are set before the program knows the addresses, and cleared after it has given them back: a hook that is
//! called with them sees them.

use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Bytes of a unit, and of the memory that a word of bits covers.
const UNIT: usize = 2 << 20;
const WORD: usize = UNIT * 64;
/// Addresses of user mode, without five-level page tables: mmap(2) gives no others unless it is asked for them.
pub const ADDRESSES: usize = 1 << 47;
const WORDS: usize = ADDRESSES / WORD;

/// The bits, in memory from the system that costs nothing where none is set. Null before the first is.
static WORDS_AT: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

fn words() -> Option<&'static [AtomicU64]> {
    // Acquire pairs with the Release in `make`.
    let words = WORDS_AT.load(Ordering::Acquire);
    // SAFETY: null, or mapped for ever by `make`.
    (!words.is_null()).then(|| unsafe { core::slice::from_raw_parts(words, WORDS) })
}

/// Makes them; false if there is no memory. For one thread at a time.
pub fn make() -> bool {
    if words().is_some() {
        return true;
    }
    let bytes = WORDS * size_of::<AtomicU64>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory, of zeros.
    let made = unsafe { crate::call::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if made == libc::MAP_FAILED {
        return false;
    }
    // Release pairs with the Acquire in `words`.
    WORDS_AT.store(made.cast(), Ordering::Release);
    true
}

/// True if anything was ever taken.
pub fn is_any() -> bool {
    words().is_some()
}

/// True if something may have been taken in `bytes` bytes from `start` on.
#[inline]
pub fn may_be_taken(start: usize, bytes: usize) -> bool {
    let Some(words) = words() else {
        return false;
    };
    let end = start.saturating_add(bytes).min(ADDRESSES);
    if start >= end {
        return false;
    }
    let (first, last) = (start / WORD, (end - 1) / WORD);
    // Relaxed: a thread learns of the addresses only after the bits were set.
    let set = |at: usize| words[at].load(Ordering::Relaxed) & mask(at, start, end) != 0;
    (first..=last).any(set)
}

/// Sets the bits of a range, or clears them. Under the table's lock.
pub fn mark(range: &Range<usize>, taken: bool) {
    let Some(words) = words() else {
        return;
    };
    let end = range.end.min(ADDRESSES);
    if range.start >= end {
        return;
    }
    let (first, last) = (range.start / WORD, (end - 1) / WORD);
    for (word, at) in words[first..=last].iter().zip(first..) {
        let mask = mask(at, range.start, end);
        // Relaxed: as above.
        match taken {
            true => word.fetch_or(mask, Ordering::Relaxed),
            false => word.fetch_and(!mask, Ordering::Relaxed),
        };
    }
}

/// True if addresses have bits.
pub fn can_mark(range: &Range<usize>) -> bool {
    range.end <= ADDRESSES
}

/// The bits that a range has in a word.
#[inline]
fn mask(at: usize, start: usize, end: usize) -> u64 {
    let base = at * WORD;
    let first = start.saturating_sub(base) / UNIT;
    let last = (end - 1 - base).min(WORD - 1) / UNIT;
    (u64::MAX << first) & (u64::MAX >> (63 - last))
}
