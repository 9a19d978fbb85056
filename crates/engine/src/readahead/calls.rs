//! Where calls that bring ranges in have ended lately: the next one may go on from there.

use super::FOLIO;
use core::ops::Range;

/// Calls that are remembered: readers of one file, in turn.
const CALLS: usize = 8;
/// Calls in a row that prove a run, where each is no more than a block: as many as touches would have to be.
const SMALL_CALLS: u8 = 4;

/// All fields are protected by the lock of the page cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calls {
    /// A ring.
    ends: [End; CALLS],
    next: u8,
}

#[derive(Debug, Clone, Copy, Default)]
struct End {
    /// The page after the last one of a call. 0: none.
    page: u64,
    /// Calls in a row that have led there.
    calls: u8,
}

impl Calls {
    /// True if `pages` go on from remembered calls, which are forgotten, and prove a run. If not, this call is remembered. Calls that
    /// do not end on a page's border share that page.
    pub(super) fn prove(&mut self, pages: &Range<u64>) -> bool {
        let goes_on = |end: &&mut End| {
            end.page != 0 && (end.page == pages.start || end.page == pages.start + 1)
        };
        if let Some(end) = self.ends.iter_mut().find(goes_on) {
            let calls = end.calls.saturating_add(1);
            let is_proven = pages.end - pages.start > FOLIO || calls >= SMALL_CALLS;
            *end = match is_proven {
                true => End::default(),
                false => End {
                    page: pages.end,
                    calls,
                },
            };
            return is_proven;
        }
        self.ends[usize::from(self.next)] = End {
            page: pages.end,
            calls: 1,
        };
        self.next = (self.next + 1) % CALLS as u8;
        false
    }
}
