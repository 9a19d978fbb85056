//! Tables whose entries are zero at first.

use crate::atomic::AtomicU64;

/// A type whose values are zero at first.
///
/// # Safety
/// Bytes that are all zero are the value that [`zero`](Self::zero) gives, and there is nothing to drop. Nothing here relies
/// on it: entries are made one by one.
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

/// A table of so many entries. `None` where the heap has no room for it.
pub fn table<T: Zero>(count: usize) -> Option<Box<[T]>> {
    let mut entries = Vec::new();
    entries.try_reserve_exact(count).ok()?;
    entries.extend(core::iter::repeat_with(T::zero).take(count));
    Some(entries.into_boxed_slice())
}
