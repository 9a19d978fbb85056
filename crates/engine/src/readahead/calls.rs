//! Where calls that bring ranges in have ended lately: the next one may go on from there.

use core::ops::Range;

/// Calls that are remembered: readers of one file, in turn.
const CALLS: usize = 8;

/// All fields are protected by the lock of the page cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calls {
    /// The page after the last one of each, a ring. 0: none.
    ends: [u64; CALLS],
    next: u8,
}

impl Calls {
    /// True if `pages` begin where a remembered call has ended, which is forgotten. If not, this call is remembered.
    pub(super) fn followed_by(&mut self, pages: &Range<u64>) -> bool {
        let ended = |end: &&mut u64| **end == pages.start && pages.start != 0;
        if let Some(end) = self.ends.iter_mut().find(ended) {
            *end = 0;
            return true;
        }
        self.ends[usize::from(self.next)] = pages.end;
        self.next = (self.next + 1) % CALLS as u8;
        false
    }
}
