//! A second window that shows the same pages, copied when either is written.

use super::{Anonymous, NotShown};
use crate::budget::{FLOOR, Need};
use crate::cache::window::CountResult;
use crate::mmu::{MmuError, TABLE_SPAN};
use crate::reclaim::memory_wait::MemoryWaitLimit;
use core::ops::Range;
use sync::Arc;

/// Why a span was not copied.
enum Refused {
    /// There is no room for so many pages.
    Budget(usize),
    Mmu(MmuError),
}

impl Anonymous {
    /// The same bytes in a window of another space. Resident pages are charged now,
    /// although they are shared until one is written, so that no write fails later for
    /// want of memory that the fork promised; where there is no room, pages of this
    /// one go to swap first. Pages in swap share their slots.
    ///
    /// The caller has write-locked every VMA that shows a page of this one. Reclaim goes
    /// on: a span's pages are locked while they are copied.
    pub(crate) fn fork(&self) -> Result<Arc<Self>, NotShown> {
        let node = &self.node;
        let child = self.empty(self.addresses().len())?;
        let window = self.addresses();
        let mut next = window.start;
        while next < window.end {
            let used = self.pages.next_used(self.page(next));
            next = self.window.address(used as u64, 0);
            if next >= window.end {
                break;
            }
            let end = ((next & !(TABLE_SPAN - 1)) + TABLE_SPAN).min(window.end);
            let mut memory_wait = MemoryWaitLimit::with_mmap_lock(&*node.clock);
            while let Err(refused) = child.copy_span(self, &(next..end)) {
                match refused {
                    Refused::Mmu(error) => return Err(NotShown::Mmu(error)),
                    Refused::Budget(pages) if memory_wait.make_room(node, Need::Pages(pages)) => {}
                    Refused::Budget(_) => return Err(NotShown::Budget),
                }
            }
            next = end;
        }
        Ok(child)
    }

    /// Copies the pages that `parent` has in a span of its window. After an error none of them is
    /// here.
    fn copy_span(&self, parent: &Self, span: &Range<usize>) -> Result<(), Refused> {
        // No fault pays for words meanwhile: those that are in use stay the same.
        parent.for_used(span.clone(), |page| {
            parent.pages.lock_bare(page);
        });
        let copied = self.copy_locked(parent, span, parent.page_range(span));
        parent.for_used(span.clone(), |page| {
            parent.pages.unlock(page, parent.pages.state(page));
        });
        copied
    }

    fn copy_locked(
        &self,
        parent: &Self,
        span: &Range<usize>,
        pages: Range<usize>,
    ) -> Result<(), Refused> {
        let node = &self.node;
        let states = || pages.clone().map(|page| parent.pages.state(page));
        let residents = states().filter(|state| state.is_resident()).count();
        let charge = states().filter(|state| state.is_resident() && !state.is_zero());
        let charge = charge.count() as u64;
        let need = Refused::Budget(charge as usize + super::FAULT_PAGES);
        // Two pages of words at most.
        let paid = self.pages.pay_for(pages.start, &node.budget)
            && self.pages.pay_for(pages.end - 1, &node.budget)
            && node.budget.try_charge(charge, FLOOR);
        if !paid {
            return Err(need);
        }
        let at = self.window.address(pages.start as u64, 0);
        if residents > 0 {
            match self.window.enter(at, residents, &node.budget, FLOOR) {
                CountResult::Counted => {}
                CountResult::NoMemory => {
                    node.budget.uncharge(charge);
                    return Err(need);
                }
                CountResult::Zapping => unreachable!("nobody else has the window"),
            }
            let (from, to) = (parent.window.reservation(), self.window.reservation());
            if let Err(error) = node.mmu.fork(from, span.clone(), to) {
                (self.window).leave_and_zap(at, residents, &*node.mmu, &node.budget);
                node.budget.uncharge(charge);
                return Err(Refused::Mmu(error));
            }
        }
        for page in pages {
            let state = parent.pages.state(page);
            let slot = parent.pages.slot(page);
            if let (Some(slot), Some(swap)) = (slot, &node.swap) {
                swap.slots.get(slot);
            }
            // Locked in the parent, and nobody's but ours here. A child does not inherit
            // that a page stays, as with mlock(2).
            self.pages.enter(page, state.with_stays(false), slot);
        }
        node.private.charged(charge);
        Ok(())
    }
}
