//! Anonymous memory that loads and stores reach, of any engine.

use super::Anonymous;
use std::ops::DerefMut;
use std::ptr::NonNull;

/// A mapping that several threads write to. Immutable; its bytes are the threads' own affair.
pub struct Stored<M> {
    start: NonNull<u8>,
    _map: M,
}

impl<M: DerefMut<Target = [u8]>> Stored<M> {
    /// Over a mapping whose bytes do not move with it.
    pub fn over(mut map: M) -> Self {
        Self {
            start: NonNull::from(&mut *map).cast(),
            _map: map,
        }
    }
}

// SAFETY: the address is that of memory that this owns, and says nothing about the thread.
unsafe impl<M: Send> Send for Stored<M> {}
// SAFETY: nothing here looks at the bytes, and the mapping itself is only dropped.
unsafe impl<M: Send> Sync for Stored<M> {}

impl<M: Send> Anonymous for Stored<M> {
    fn start(&self) -> Option<NonNull<u8>> {
        Some(self.start)
    }
}
