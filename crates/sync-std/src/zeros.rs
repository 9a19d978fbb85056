//! Tables whose entries are zero at first.

use core::alloc::Layout;
use core::sync::atomic::AtomicU64;
use std::alloc::alloc_zeroed;

/// A type whose values are zero at first.
///
/// # Safety
/// Bytes that are all zero are the value that [`zero`](Self::zero) gives, and there is nothing to drop.
pub unsafe trait Zero {
    /// The first value.
    fn zero() -> Self;
}

// SAFETY: a number.
unsafe impl Zero for u32 {
    fn zero() -> Self {
        0
    }
}

// SAFETY: a number.
unsafe impl Zero for AtomicU64 {
    fn zero() -> Self {
        Self::new(0)
    }
}

/// A table of so many entries. `None` where the heap has no room for it. A world of models
/// may give fewer. The system gives memory of zeros as it is, so a large table costs nothing until it is written to.
pub fn table<T: Zero>(count: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(count).ok()?;
    if layout.size() == 0 {
        return Some((0..count).map(|_| T::zero()).collect());
    }
    // SAFETY: of a size that is not zero.
    let entries = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if entries.is_null() {
        return None;
    }
    // SAFETY: allocated with the layout of so many entries, each of which is valid as zeros, and nobody
    // else's.
    Some(unsafe { Vec::from_raw_parts(entries, count, count) }.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    fn words(count: usize) -> Option<Box<[AtomicU64]>> {
        table(count)
    }

    #[test]
    fn they_are_zero_and_can_be_written_to() {
        assert_eq!(words(0).unwrap().len(), 0);
        let table = words(1 << 16).unwrap();
        assert!(table.iter().all(|word| word.load(Relaxed) == 0));
        table[65_535].store(7, Relaxed);
        assert_eq!(table[65_535].load(Relaxed), 7);
        assert!(words(usize::MAX / 8).is_none(), "no machine has as much");
        assert!(words(usize::MAX).is_none());
    }
}
