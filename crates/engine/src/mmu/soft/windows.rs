//! Which addresses windows have. They are numbers: nothing is mapped there.
//!
//! ```text
//!   0                     64 TiB      65 TiB                       128 TiB
//!   | large windows          | arena 0  | arena 1  | ...              |
//! ```
//!
//! A small window is in the arena of the processor that makes it, or in the first part if that has no room. So threads that map
//! and unmap beside one another take locks of their own, and neighbours in a space are one thread's: not all of them want the
//! same leaf of the tree of VMAs, nor the same page tables. To give a window back takes the lock of the part that it is in.
//!
//! The tables above the leaf of an arena's first window stay once they are made, two pages each: a thread that has one window at a
//! time would make them and free them each time. When no window needs them nobody pays for them: they are memory of
//! [`SoftMmu`](super::SoftMmu) beside the budget, two pages for each arena that was ever used, 512 KiB at most.

use crate::lock::{Mutex, order};
use crate::mmu::TABLE_SPAN;
use core::ops::Range;

/// Bytes of soft address space: the half that a process has, of 48 bits.
const END: usize = 1 << 47;
/// Bytes of an arena: whole tables of every level below the root, so that none serves two parts.
const ARENA: usize = 1 << ARENA_SHIFT;
/// The same as a power of two.
pub(crate) const ARENA_SHIFT: u32 = 40;
/// Arenas, in the upper half. Processors have one number modulo this. Few where the world has few processors: a model looks at every
/// lock there is, in each of its steps.
pub(crate) const ARENAS: usize = if sync::PROCESSORS < 64 {
    sync::PROCESSORS
} else {
    64
};
/// Where they begin.
pub(crate) const FIRST_ARENA: usize = END - ARENAS * ARENA;
/// The largest window of an arena.
const SMALL: usize = 1 << 30;

/// The windows of all parts.
#[derive(Debug)]
pub struct Parts(Box<[Part]>);

#[derive(Debug)]
#[repr(align(64))]
struct Part(Mutex<Windows, { order::SOFT_WINDOWS }>);

impl Parts {
    /// Without windows.
    pub fn new() -> Self {
        let large = Windows::within(0..FIRST_ARENA);
        let starts = (FIRST_ARENA..END).step_by(ARENA);
        let arenas = starts.map(|start| Windows::within(start..start + ARENA));
        let parts = core::iter::once(large).chain(arenas);
        Self(parts.map(|part| Part(Mutex::ranked(part))).collect())
    }

    /// Takes `bytes` of address space.
    pub fn take(&self, bytes: usize) -> Option<usize> {
        let arena = 1 + sync::cpu() % ARENAS;
        let small = (bytes <= SMALL).then(|| self.0[arena].0.lock().take(bytes));
        small.flatten().or_else(|| self.0[0].0.lock().take(bytes))
    }

    /// The part that has the window at `addr`, or would have it. None past the end of all.
    pub fn of(&self, addr: usize) -> Option<&Mutex<Windows, { order::SOFT_WINDOWS }>> {
        let arena = addr.checked_sub(FIRST_ARENA);
        let part = self.0.get(arena.map_or(0, |at| 1 + at / ARENA));
        part.map(|part| &part.0)
    }

    /// All parts.
    pub fn iter(&self) -> impl Iterator<Item = &Mutex<Windows, { order::SOFT_WINDOWS }>> {
        self.0.iter().map(|part| &part.0)
    }
}

/// The windows of a part, by address.
#[derive(Debug)]
pub struct Windows {
    /// The addresses of the part. Immutable.
    all: Range<usize>,
    /// As if there was a window before this address, always. Immutable.
    stays: usize,
    /// Sorted; each from one table's first address to a table's end.
    taken: Vec<Range<usize>>,
}

impl Windows {
    fn within(all: Range<usize>) -> Self {
        Self {
            stays: all.start + usize::from(all.start >= FIRST_ARENA),
            all,
            taken: Vec::new(),
        }
    }

    /// Takes `bytes` of address space, at the lowest place where they fit.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.max(1).checked_next_multiple_of(TABLE_SPAN)?;
        // No window is at 0.
        let mut start = self.all.start.max(TABLE_SPAN);
        let mut place = 0;
        for window in &self.taken {
            if window.start - start >= bytes {
                break;
            }
            start = window.end;
            place += 1;
        }
        if self.all.end - start < bytes {
            return None;
        }
        self.taken.insert(place, start..start + bytes);
        Some(start)
    }

    /// Gives the window at `addr` back. Returns the addresses between its
    /// neighbours, or to the end of the part.
    pub fn give(&mut self, addr: usize) -> Range<usize> {
        let place = self
            .taken
            .binary_search_by_key(&addr, |window| window.start);
        let place = place.expect("a window is released once");
        self.taken.remove(place);
        let below = place
            .checked_sub(1)
            .map_or(self.stays, |below| self.taken[below].end);
        let above = self.taken.get(place);
        let above = above.map_or(self.all.end, |above| above.start);
        below..above
    }

    /// The window that has all of `range`, whole tables.
    pub fn find(&self, range: &Range<usize>) -> Option<&Range<usize>> {
        let above = self
            .taken
            .partition_point(|window| window.start <= range.start);
        let window = &self.taken[above.checked_sub(1)?];
        (range.end <= window.end).then_some(window)
    }

    /// The addresses before the first window, or all of the part.
    pub fn before_first(&self) -> Range<usize> {
        let first = self.taken.first();
        self.all.start..first.map_or(self.all.end, |window| window.start)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Range<usize>> {
        self.taken.iter()
    }
}
