//! The pages that were missed last.
//!
//! Threads that miss a page at once are told of one after the other, and a fault that is left to another thread is told of again. A page
//! that was missed a moment ago was not evicted since.

/// More than there are threads that miss one page at once, as a rule.
const LAST: usize = 8;

/// Protected by the lock of the page cache.
pub(super) struct Missed {
    pages: [u64; LAST],
    /// The next to be replaced.
    next: u8,
}

impl Missed {
    pub(super) const NONE: Missed = Missed {
        pages: [u64::MAX; LAST],
        next: 0,
    };

    /// Takes note of a miss; true if the page is one of the last.
    pub(super) fn note(&mut self, page: u64) -> bool {
        let is_again = self.pages.contains(&page);
        if !is_again {
            self.pages[usize::from(self.next)] = page;
            self.next = (self.next + 1) % LAST as u8;
        }
        is_again
    }
}
