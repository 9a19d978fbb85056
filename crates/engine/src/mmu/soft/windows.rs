//! Which addresses windows have. They are numbers: nothing is mapped there.

use crate::mmu::TABLE_SPAN;
use core::ops::Range;

/// Bytes of soft address space: the half that a process has, of 48 bits.
const END: usize = 1 << 47;

/// The windows, by address.
#[derive(Debug, Default)]
pub struct Windows {
    /// Sorted; each from one table's first address to a table's end.
    taken: Vec<Range<usize>>,
}

impl Windows {
    /// Takes `bytes` of address space, at the lowest place where they fit.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.max(1).checked_next_multiple_of(TABLE_SPAN)?;
        // No window is at 0.
        let mut start = TABLE_SPAN;
        let mut place = 0;
        for window in &self.taken {
            if window.start - start >= bytes {
                break;
            }
            start = window.end;
            place += 1;
        }
        if END - start < bytes {
            return None;
        }
        self.taken.insert(place, start..start + bytes);
        Some(start)
    }

    /// Gives the window at `addr` back. Returns the addresses between its
    /// neighbours.
    pub fn give(&mut self, addr: usize) -> Range<usize> {
        let place = self
            .taken
            .binary_search_by_key(&addr, |window| window.start);
        let place = place.expect("a window is released once");
        self.taken.remove(place);
        let below = place
            .checked_sub(1)
            .map_or(0, |below| self.taken[below].end);
        let above = self.taken.get(place).map_or(END, |above| above.start);
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

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Range<usize>> {
        self.taken.iter()
    }
}
