//! Moving pages, their words and their slots to a longer window, for `mremap(2)`
//! where there is no room to grow.
//!
//! ```text
//!   1  counted in   the new window pays for words and page tables      may fail
//!   2  locked       all pages; reads under way are forgotten
//!   3  moved        in the page tables, a span at a time               may fail: moved back
//!   4  handed over  words and slots; the old window is counted out
//! ```
//!
//! No fault is in progress: the VMAs are write-locked. Nothing is evicted from 1 to 4,
//! so the counts stay true. Pages stay charged throughout.

use super::{Anonymous, NotShown, PageState};
use crate::PAGE_SIZE;
use crate::budget::{FLOOR, Need};
use crate::cache::MapError;
use crate::cache::window::{CountResult, TABLE_PAGES};
use crate::mmu::{MmuError, PartialMove};
use crate::reclaim::memory_wait::MemoryWaitLimit;
use core::ops::Range;
use sync::Arc;

/// Times that pages are moved back before there is no hope: the tables are still
/// there, so it needs next to nothing.
const TRIES: usize = 1000;

impl Anonymous {
    /// An empty window of so many bytes, to move these pages to.
    pub fn longer(&self, bytes: usize) -> Result<Arc<Self>, MapError> {
        self.empty(bytes)
    }

    /// Moves all that this window has to the same places of `to`, which has nothing
    /// yet, and no fewer pages. The caller has write-locked every VMA of both.
    pub(crate) fn move_to(&self, to: &Self) -> Result<(), NotShown> {
        assert!(Arc::ptr_eq(&self.node, &to.node), "pages of another node");
        assert!(self.pages.count() <= to.pages.count(), "a shorter window");
        Move { from: self, to }.run()
    }

    /// Moved pages are protected, there or back again. Those that stay may be handed to system calls, which fail there.
    fn unprotect_moved(&self, page: usize, state: PageState) {
        if state.stays() && state.is_resident() {
            let done = self.make_writable_alone(page);
            debug_assert!(done.is_ok(), "a page that was moved: {done:?}");
        }
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
}

/// The pages of one window on their way to another.
struct Move<'a> {
    from: &'a Anonymous,
    to: &'a Anonymous,
}

impl Move<'_> {
    fn run(&self) -> Result<(), NotShown> {
        let Self { from, to } = *self;
        let node = &from.node;
        // Before `to` has pages that stay.
        to.keep_state.take_over(&from.keep_state);
        let mut memory_wait = MemoryWaitLimit::with_mmap_lock(&*node.clock);
        let _stopped = loop {
            let stopped = node.stop_eviction();
            let Err(pages) = self.count_in() else {
                break stopped;
            };
            drop(stopped);
            if !memory_wait.make_room(node, Need::Pages(pages)) {
                return Err(NotShown::Budget);
            }
        };
        from.for_used(from.addresses(), |page| {
            from.pages.lock_bare(page);
        });
        if let Some(cache) = &from.swap_cache {
            cache.forget(from.addresses());
        }
        if let Err(error) = self.move_tables() {
            from.for_used(from.addresses(), |page| {
                let state = from.pages.state(page);
                from.pages.unlock(page, state);
                from.unprotect_moved(page, state);
            });
            self.count_out(from.addresses().end);
            return Err(NotShown::Mmu(error));
        }
        self.hand_over();
        Ok(())
    }

    /// The spans that have residents, and how many.
    fn resident_spans(&self, end: usize) -> impl Iterator<Item = (Range<usize>, usize)> + '_ {
        let window = &self.from.window;
        let spans = window.spans(self.from.addresses().start..end);
        let counted = spans.map(|span| (span.clone(), window.residents(span.start)));
        counted.filter(|&(_, residents)| residents > 0)
    }

    /// The address in the new window of the page that the old one shows at `addr`.
    fn place(&self, addr: usize) -> usize {
        self.to.addresses().start + (addr - self.from.addresses().start)
    }

    /// Pays for words and page tables of the new window; the error is the number of pages that are wanted.
    fn count_in(&self) -> Result<(), usize> {
        let Self { from, to } = *self;
        let budget = &from.node.budget;
        let mut paid = true;
        from.for_used(from.addresses(), |page| {
            paid = paid && to.pages.pay_for(page, budget);
        });
        if !paid {
            return Err(super::FAULT_PAGES);
        }
        for (span, residents) in self.resident_spans(from.addresses().end) {
            let place = self.place(span.start);
            match to.window.enter(place, residents, budget, FLOOR) {
                CountResult::Counted => {}
                CountResult::NoMemory => {
                    self.count_out(span.start);
                    return Err(self.pages_for_tables());
                }
                CountResult::Zapping => unreachable!("nobody else has the window"),
            }
        }
        Ok(())
    }

    /// The memory that page tables of the new window need, all at once: they are paid back where one of them has none.
    #[cold]
    #[inline(never)]
    fn pages_for_tables(&self) -> usize {
        let mut spans = 0;
        for _ in self.resident_spans(self.from.addresses().end) {
            spans += 1;
        }
        super::FAULT_PAGES + spans * TABLE_PAGES as usize
    }

    /// Takes back the counts in the new window of the spans below `end`.
    fn count_out(&self, end: usize) {
        let node = &self.from.node;
        for (span, residents) in self.resident_spans(end) {
            let place = self.place(span.start);
            (self.to.window).leave_and_zap(place, residents, &*node.mmu, &node.budget);
        }
    }

    /// Moves the resident pages. After an error all of them are where they were.
    fn move_tables(&self) -> Result<(), MmuError> {
        let Self { from, to } = *self;
        let (here, there) = (from.window.reservation(), to.window.reservation());
        let mmu = &from.node.mmu;
        for (span, _) in self.resident_spans(from.addresses().end) {
            let place = self.place(span.start);
            let moved = mmu
                .move_pages((here, span.start), (there, place), span.len())
                .or_else(|partial| match partial.error {
                    MmuError::Gone => self.move_residents(&span, partial.moved),
                    _ => Err(partial),
                });
            if let Err(partial) = moved {
                self.move_back(span.start + partial.moved);
                return Err(partial.error);
            }
        }
        Ok(())
    }

    /// Moves pages below `end` back, all of which have moved. Page by page: where they are copied, each makes room for the next. Only
    /// those with memory: it may not be seen that one is missing, and the system refuses to move it.
    #[cold]
    fn move_back(&self, end: usize) {
        let Self { from, to } = *self;
        let (here, there) = (from.window.reservation(), to.window.reservation());
        for (span, _) in self.resident_spans(end) {
            for at in span.step_by(PAGE_SIZE) {
                if !from.pages.state(from.page(at)).is_resident() {
                    continue;
                }
                let (mmu, place) = (&from.node.mmu, self.place(at));
                let back = || mmu.move_pages((there, place), (here, at), PAGE_SIZE);
                let done = (0..TRIES).any(|_| back().is_ok() || yielded());
                assert!(done, "pages that were moved cannot go back");
            }
        }
    }

    /// The same of one span, of which the first bytes have `moved`, page by page, without pages that have no memory here: where a touch of
    /// such a page was an error, the tables may have an entry for it that cannot be moved.
    fn move_residents(&self, span: &Range<usize>, moved: usize) -> Result<(), PartialMove> {
        let Self { from, to } = *self;
        let (here, there) = (from.window.reservation(), to.window.reservation());
        for at in (span.start + moved..span.end).step_by(PAGE_SIZE) {
            if from.pages.state(from.page(at)).is_resident() {
                let place = self.place(at);
                let moved = (from.node.mmu).move_pages((here, at), (there, place), PAGE_SIZE);
                moved.map_err(|partial| PartialMove {
                    moved: at - span.start,
                    ..partial
                })?;
            }
        }
        Ok(())
    }

    /// Gives words and slots to the new window, and counts the old one out.
    fn hand_over(&self) {
        let Self { from, to } = *self;
        from.for_used(from.addresses(), |page| {
            let (state, slot) = (from.pages.state(page), from.pages.slot(page));
            if state != PageState::ABSENT || slot.is_some() {
                to.pages.enter(page, state, slot);
                from.pages.set_slot(page, None);
            }
            from.pages.unlock(page, PageState::ABSENT);
            to.unprotect_moved(page, state);
        });
        let node = &from.node;
        for (span, residents) in self.resident_spans(from.addresses().end) {
            (from.window).leave_and_zap(span.start, residents, &*node.mmu, &node.budget);
        }
    }
}

/// False, after a while.
fn yielded() -> bool {
    sync::thread::yield_now();
    false
}
