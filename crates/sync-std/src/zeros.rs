//! Tables of words that are zero.

use core::alloc::Layout;
use core::sync::atomic::AtomicU64;
use std::alloc::alloc_zeroed;

/// So many words. `None` where the heap has no room for them. The system gives memory of zeros as it
/// is, so a large table costs nothing until a word of it is written to.
pub fn words(count: usize) -> Option<Box<[AtomicU64]>> {
    let layout = Layout::array::<AtomicU64>(count).ok()?;
    if layout.size() == 0 {
        return Some(Box::default());
    }
    // SAFETY: of a size that is not zero.
    let words = unsafe { alloc_zeroed(layout) }.cast::<AtomicU64>();
    if words.is_null() {
        return None;
    }
    // SAFETY: allocated with the layout of so many words, each of which is valid as zeros, and nobody
    // else's.
    Some(unsafe { Vec::from_raw_parts(words, count, count) }.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

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
