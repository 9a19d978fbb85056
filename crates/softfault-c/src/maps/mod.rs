//! The map of an address, and its parts that are still mapped.
//!
//! Maps of one file in one engine show one window, and so may have the same addresses: each of their pages is mapped as
//! many times as mmap was called for it, and is gone when munmap was called as often. Here is the table of windows by
//! address. Its lock is taken for a look or a change and held over no call of the library's. A call has a
//! reference to its map, and so a map that is unmapped meanwhile goes when that call is through.
//!
//! | file | has |
//! |---|---|
//! | `window` | the maps of one window, and which pages of it are mapped |
//! | `run` | pages of it that the same maps have |
//! | `find` | the maps of a range |
//! | `take_out` | pages that are unmapped, and maps that are changed as a whole |
//! | `calls` | calls under way, and the unmaps that wait for their end |
//! | `change` | pages of a part that are changed while others use the map |
//! | `kept` | pages that stay: pins and locks |
//! | `fork` | the lock, while the process forks |

mod calls;
mod change;
mod find;
mod fork;
mod kept;
mod run;
mod take_out;
mod window;

pub(crate) use change::{are_of_zeros, protect, renew};
#[cfg(test)]
pub(crate) use find::room_for_calls;
pub(crate) use find::{Part, forget_ended_calls, has_any, is_one_map, page_size};
pub(crate) use fork::{allow_inherit, is_forking};
pub(crate) use kept::{is_locked, lock, lock_again, locked_unpinned, pin, unlock, unpin};
pub(crate) use take_out::{Taken, unmap};
pub(crate) use window::Access;

use core::ops::Range;
use softfault::MmapRaw;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use window::{Mapped, Window};

/// The maps of the process.
static MAPS: RwLock<Maps> = RwLock::new(Maps {
    windows: BTreeMap::new(),
    taken: 0,
    childless: Vec::new(),
});

/// Windows by their first address. No two have an address in common.
pub(crate) struct Maps {
    windows: BTreeMap<usize, Window>,
    /// Maps that are in nobody's table, since a thread changes them as a whole.
    taken: usize,
    /// In a child of fork: those of its parent that it has not inherited. They are not dropped, since something else may be there.
    childless: Vec<Window>,
}

/// Some of a range is no map; or, of a range to unmap, only a part of a huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotMapped;

/// Looks.
fn look() -> RwLockReadGuard<'static, Maps> {
    MAPS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Changes.
fn change() -> RwLockWriteGuard<'static, Maps> {
    MAPS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a map, which has been asked for so many bytes; answers its first address.
pub(crate) fn enter(map: MmapRaw, asked: usize, access: Access) -> usize {
    enter_mapped(Mapped::new(map, asked, access), access.writable, &[])
}

/// The same; all of it may be written to now, or not, however it was made, and children of fork do not inherit some pages.
fn enter_mapped(mapped: Mapped, writable: bool, childless: &[Range<usize>]) -> usize {
    fork::watch();
    let window = mapped.map.window();
    let (pages, made) = (mapped.range().clone(), mapped.access);
    let mut maps = change();
    let entry = maps.windows.entry(window.start);
    let entry = entry.or_insert_with(|| Window::new(window));
    entry.enter(mapped);
    if writable != made.writable {
        entry.set_writable(&pages, writable);
    }
    childless
        .iter()
        .for_each(|pages| entry.allow_inherit(pages, false));
    pages.start
}

impl Maps {
    /// The window that an address is in.
    fn window(&self, address: usize) -> Option<&Window> {
        let (_, window) = self.windows.range(..=address).next_back()?;
        window.range().contains(&address).then_some(window)
    }

    /// The same, to be changed.
    fn window_mut(&mut self, address: usize) -> Option<&mut Window> {
        let (_, window) = self.windows.range_mut(..=address).next_back()?;
        window.range().contains(&address).then_some(window)
    }
}

/// The rest of ranges that touch each other nowhere, without `cut`.
fn without(ranges: &[Range<usize>], cut: &Range<usize>) -> Vec<Range<usize>> {
    let parts = ranges.iter().flat_map(|range| {
        let below = range.start..range.end.min(cut.start).max(range.start);
        let above = range.start.max(cut.end).min(range.end)..range.end;
        [below, above]
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// The intersection of two ranges; empty if there is none.
fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut() {
        let left = |ranges: &[(usize, usize)], cut: Range<usize>| -> Vec<(usize, usize)> {
            let ranges: Vec<_> = ranges.iter().map(|&(start, end)| start..end).collect();
            let left = without(&ranges, &cut).into_iter();
            left.map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(left(&[(0, 10)], 3..5), [(0, 3), (5, 10)]);
        assert_eq!(left(&[(0, 10)], 0..5), [(5, 10)]);
        assert_eq!(left(&[(0, 10)], 5..12), [(0, 5)]);
        assert_eq!(left(&[(0, 10)], 12..15), [(0, 10)]);
        assert_eq!(left(&[(5, 10)], 0..2), [(5, 10)]);
        assert_eq!(left(&[(2, 4), (6, 8)], 3..7), [(2, 3), (7, 8)]);
        assert!(left(&[(2, 4)], 0..9).is_empty());
        assert_eq!(common(&(0..5), &(3..9)), 3..5);
        assert!(common(&(0..5), &(5..9)).is_empty());
        assert!(common(&(6..8), &(0..2)).is_empty());
    }
}
