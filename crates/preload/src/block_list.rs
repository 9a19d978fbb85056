//! Large blocks of malloc(3), by address (`blocks.rs`).
//!
//! The list is locked after the table and before the heap, from which it has its memory, and is still while the process
//! forks.

use core::cell::UnsafeCell;
use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The blocks.
pub struct Blocks {
    /// Their mappings, by the addresses that the program has.
    pub mappings: BTreeMap<usize, Range<usize>>,
    /// Mappings of blocks that were freed where they could not be unmapped.
    pub later: Vec<Range<usize>>,
}

impl Blocks {
    /// True if one overlaps a range.
    pub fn is_over(&self, range: &Range<usize>) -> bool {
        let overlaps =
            |mapping: &Range<usize>| mapping.start < range.end && range.start < mapping.end;
        // They do not overlap each other, and the program's addresses are within.
        let before = self.mappings.range(..range.end).next_back();
        let behind = self.mappings.range(range.end..).next();
        let near = before.into_iter().chain(behind).map(|(_, mapping)| mapping);
        near.chain(&self.later).any(overlaps)
    }
}

static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks {
    mappings: BTreeMap::new(),
    later: Vec::new(),
});

/// Locks it: in a thread whose signals are masked.
pub fn lock() -> MutexGuard<'static, Blocks> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of the forking thread.
struct Held(UnsafeCell<Option<MutexGuard<'static, Blocks>>>);

// SAFETY: only the thread that has the list locked looks at it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Before the process forks, once a fork.
pub fn hold() {
    let locked = lock();
    // SAFETY: this thread has the list locked.
    unsafe { *HELD.0.get() = Some(locked) };
}

/// Looks at it in the thread that has it locked for a fork.
pub fn in_held<T>(look: impl FnOnce(&Blocks) -> Option<T>) -> Option<T> {
    // SAFETY: this thread has the list locked, and lets it go only later.
    look(unsafe { (*HELD.0.get()).as_deref() }?)
}

/// After it, in the parent or the child.
pub fn let_go() {
    // SAFETY: this thread has locked the list in `hold`, or its parent's copy of it has.
    drop(unsafe { (*HELD.0.get()).take() });
}
