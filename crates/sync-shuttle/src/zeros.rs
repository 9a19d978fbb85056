//! Tables of words that are zero.

use crate::atomic::AtomicU64;

/// So many words. `None` where the heap has no room for them.
pub fn words(count: usize) -> Option<Box<[AtomicU64]>> {
    let mut words = Vec::new();
    words.try_reserve_exact(count).ok()?;
    words.extend(core::iter::repeat_with(|| AtomicU64::new(0)).take(count));
    Some(words.into_boxed_slice())
}
