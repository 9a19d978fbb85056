//! Moving pages, their words and their slots to a longer window: what `mremap(2)` does
//! where there is no room to grow.
//!
//! ```text
//!   1  counted in   the new window pays for words and page tables      may fail
//!   2  locked       all pages; what is being read back is forgotten
//!   3  moved        in the page tables, a span at a time               may fail: moved back
//!   4  handed over  words and slots; the old window is counted out
//! ```
//!
//! No fault is in progress: the VMAs are write-locked. Nothing is evicted from 1 to 4,
//! so what was counted stays true. Pages stay charged throughout.

use super::view::Origin;
use super::{Anonymous, NotShown, PageState};
use crate::budget::{FLOOR, Need};
use crate::cache::MapError;
use crate::cache::window::Enter;
use crate::mmu::MmuError;
use core::ops::Range;
use sync::Arc;
use sync::atomic::Ordering;

/// Times that pages are moved back before there is no hope: the tables are still
/// there, so it needs next to nothing.
const TRIES: usize = 1000;

impl Anonymous {
    /// An empty window of so many bytes, for what is here to move to.
    pub fn longer(&self, bytes: usize) -> Result<Arc<Self>, MapError> {
        let origin = self.origin().map(|origin| Origin {
            store: origin.store.clone(),
            offset: origin.offset,
        });
        let on_truncate = self.cache.as_ref().map(|cache| cache.on_truncate);
        Self::make(
            self.node.clone(),
            bytes,
            origin,
            on_truncate.unwrap_or_default(),
        )
    }

    /// Moves all that this window has to the same places of `to`, which has nothing
    /// yet, and no fewer pages. The caller has write-locked every VMA of both.
    pub(crate) fn move_to(&self, to: &Self) -> Result<(), NotShown> {
        let node = &self.node;
        assert!(Arc::ptr_eq(node, &to.node), "pages of another node");
        assert!(self.pages.count() <= to.pages.count(), "a shorter window");
        // Before `to` has pages that stay.
        to.keeps
            .fetch_max(self.keeps.load(Ordering::Relaxed), Ordering::Relaxed);
        let _stopped = loop {
            let stopped = node.stop_eviction();
            let Err(pages) = self.count_into(to) else {
                break stopped;
            };
            drop(stopped);
            if !node.make_room(Need::Pages(pages)) {
                return Err(NotShown::Budget);
            }
        };
        self.for_used(self.addresses(), |page| {
            self.pages.lock_bare(page);
        });
        if let Some(cache) = &self.cache {
            cache.invalidate(self.addresses());
        }
        let moved = self.move_tables(to);
        if let Err(error) = moved {
            self.for_used(self.addresses(), |page| {
                self.pages.unlock(page, self.pages.state(page));
            });
            self.count_out_of(to, self.addresses().end);
            return Err(NotShown::Mmu(error));
        }
        self.hand_over(to);
        Ok(())
    }

    /// Calls `each` with the pages of a range of addresses that may be something.
    pub(super) fn for_used(&self, range: Range<usize>, mut each: impl FnMut(usize)) {
        let pages = self.page_range(&range);
        let mut next = self.pages.next_used(pages.start);
        while next < pages.end {
            each(next);
            next = self.pages.next_used(next + 1);
        }
    }

    /// The spans that have residents, and how many.
    fn resident_spans(&self, end: usize) -> impl Iterator<Item = (Range<usize>, usize)> + '_ {
        let spans = self.window.spans(self.addresses().start..end);
        let counted = spans.map(|span| (span.clone(), self.window.residents(span.start)));
        counted.filter(|&(_, residents)| residents > 0)
    }

    /// Where `to` shows what this window shows at `addr`.
    fn place_in(&self, to: &Self, addr: usize) -> usize {
        to.addresses().start + (addr - self.addresses().start)
    }

    /// Pays for what comes with the pages in `to`; or says how many pages are wanted.
    fn count_into(&self, to: &Self) -> Result<(), usize> {
        let budget = &self.node.budget;
        let mut paid = true;
        self.for_used(self.addresses(), |page| {
            paid = paid && to.pages.pay_for(page, budget);
        });
        if !paid {
            return Err(super::FAULT_PAGES);
        }
        for (span, residents) in self.resident_spans(self.addresses().end) {
            let place = self.place_in(to, span.start);
            match to.window.enter(place, residents, budget, FLOOR) {
                Enter::Entered => {}
                Enter::NoMemory => {
                    self.count_out_of(to, span.start);
                    return Err(super::FAULT_PAGES);
                }
                Enter::Zapping => unreachable!("nobody else has the window"),
            }
        }
        Ok(())
    }

    /// Takes back what was counted into `to` of the spans below `end`.
    fn count_out_of(&self, to: &Self, end: usize) {
        for (span, residents) in self.resident_spans(end) {
            let place = self.place_in(to, span.start);
            to.window
                .leave_and_zap(place, residents, &*self.node.mmu, &self.node.budget);
        }
    }

    /// Moves what is resident. After an error all of it is here.
    fn move_tables(&self, to: &Self) -> Result<(), MmuError> {
        let (here, there) = (self.window.reservation(), to.window.reservation());
        let mmu = &self.node.mmu;
        for (span, _) in self.resident_spans(self.addresses().end) {
            let place = self.place_in(to, span.start);
            let moved = mmu.move_pages((here, span.start), (there, place), span.len());
            let Err(error) = moved else { continue };
            // Of the last span, some have moved.
            for (span, _) in self.resident_spans(span.end) {
                let place = self.place_in(to, span.start);
                let back = || mmu.move_pages((there, place), (here, span.start), span.len());
                let done = (0..TRIES).any(|_| back().is_ok() || yielded());
                assert!(done, "pages that were moved cannot go back");
            }
            return Err(error);
        }
        Ok(())
    }

    /// Gives words and slots to `to`, and counts this window out.
    fn hand_over(&self, to: &Self) {
        self.for_used(self.addresses(), |page| {
            let (state, slot) = (self.pages.state(page), self.pages.slot(page));
            if state != PageState::ABSENT || slot.is_some() {
                to.pages.enter(page, state, slot);
                self.pages.set_slot(page, None);
            }
            self.pages.unlock(page, PageState::ABSENT);
            if state.stays() && state.is_resident() {
                // Moved pages are protected.
                let done = to.make_writable_alone(page);
                debug_assert!(done.is_ok(), "a page that was moved: {done:?}");
            }
        });
        for (span, residents) in self.resident_spans(self.addresses().end) {
            (self.window).leave_and_zap(span.start, residents, &*self.node.mmu, &self.node.budget);
        }
    }
}

/// False, after a while.
fn yielded() -> bool {
    sync::thread::yield_now();
    false
}
