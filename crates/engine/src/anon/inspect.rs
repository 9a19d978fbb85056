//! Looking at anonymous memory, for statistics and tests.

use super::{Anonymous, PageState};
use core::ops::Range;

impl Anonymous {
    /// Pages that are resident, zeros without memory included, by counting. Exact
    /// while nobody changes it.
    pub fn resident_pages(&self) -> usize {
        let spans = self.window.spans(self.addresses());
        spans.map(|span| self.window.residents(span.start)).sum()
    }

    /// True if `addr`'s page is resident.
    #[inline]
    pub fn is_resident(&self, addr: usize) -> bool {
        self.page_state(addr).is_resident()
    }

    /// True if somebody has the page that has `addr` locked, a moment ago.
    pub fn is_locked(&self, addr: usize) -> bool {
        self.pages.unlocked_state(self.page(addr)).is_none()
    }

    /// The state of the page at `addr`.
    #[inline]
    pub fn page_state(&self, addr: usize) -> PageState {
        self.pages.state(self.page(addr))
    }

    /// Pages of a range of addresses for which `is` holds.
    pub fn count_pages(&self, range: Range<usize>, is: impl Fn(PageState) -> bool) -> usize {
        let pages = self.page_range(&range);
        let mut count = 0;
        let mut page = self.pages.next_used(pages.start);
        while page < pages.end {
            count += usize::from(is(self.pages.state(page)));
            page = self.pages.next_used(page + 1);
        }
        count
    }

    /// Pages that are charged for it, with words and tables, by counting. Exact while
    /// nobody changes it.
    pub fn charged_pages(&self) -> u64 {
        let is_charged = |state: PageState| state.is_resident() && !state.is_zero();
        let pages = self.count_pages(self.addresses(), is_charged) as u64;
        pages + self.pages.charged_pages() + self.window.charged_tables()
    }

    /// The slot that has the bytes of the page at `addr`, if one has. Exact while nobody
    /// changes it.
    pub fn slot(&self, addr: usize) -> Option<u32> {
        self.pages.slot(self.page(addr))
    }

    /// Slots that its pages have. Exact while nobody changes it.
    pub fn swap_slots(&self) -> usize {
        let pages = self.pages.count();
        let has_slot = |&page: &usize| {
            let state = self.pages.state(page);
            (state.is_swapped() || state.is_clean()) && self.pages.slot(page).is_some()
        };
        (0..pages).filter(has_slot).count()
    }
}
