//! A second window that shows the same pages, copied when either is written.

use super::Anonymous;
use crate::PAGE_SIZE;
use crate::cache::window::Enter;
use crate::mm::MmError;
use crate::mmu::MmuError;
use crate::reclaim::Need;
use core::ops::Range;
use sync::Arc;

/// Why a space was not forked. Nothing is left of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkError {
    /// The budget has no room for the copy of a resident page, or for a table
    /// of it, and nothing can be evicted. See [`Anonymous`]: copies are paid
    /// for at the fork.
    Budget,
    /// The page tables cannot show the copy.
    Mmu(MmuError),
    /// The machine has no VMA or tree node left.
    Mappings,
}

impl From<MmError> for ForkError {
    fn from(error: MmError) -> Self {
        assert!(error == MmError::NoMemory, "a copy of a mapping: {error:?}");
        Self::Mappings
    }
}

impl Anonymous {
    /// The same bytes in a window of another space. All of its resident pages
    /// are charged now, although they are shared until one is written, so that
    /// no write fails later for want of memory that the fork promised.
    ///
    /// The caller has write-locked every VMA that shows a page of this one.
    pub(crate) fn fork(&self) -> Result<Arc<Self>, ForkError> {
        let node = &self.node;
        let bytes = self.addresses().len();
        let child = Self::new(node.clone(), bytes).map_err(ForkError::Mmu)?;
        for span in self.window.spans(self.addresses()) {
            let pages = self.window.residents(span.start);
            while pages > 0 && !child.enter_copy(self, &span, pages) {
                if !node.make_room(Need::Pages(pages + super::FAULT_PAGES)) {
                    return Err(ForkError::Budget);
                }
            }
        }
        let (from, to) = (self.window.reservation(), child.window.reservation());
        match node.mmu.fork(from, to) {
            Ok(()) => Ok(child),
            Err(error) => Err(ForkError::Mmu(error)),
        }
    }

    /// Counts in what `parent` has resident in `span` of its window, which are
    /// `pages`. `false`, and nothing, if the budget has no room.
    fn enter_copy(&self, parent: &Self, span: &Range<usize>, pages: usize) -> bool {
        let budget = &self.node.budget;
        let first = parent.page(span.start);
        let last = parent.page(span.end - PAGE_SIZE);
        // Two pages of words at most.
        if !self.pages.pay_for(first, budget) || !self.pages.pay_for(last, budget) {
            return false;
        }
        if !budget.try_charge(pages as u64, 0) {
            return false;
        }
        let addr = self.window.address(first as u64, 0);
        match self.window.enter(addr, pages, budget, 0) {
            Enter::Entered => {}
            Enter::NoMemory => {
                budget.uncharge(pages as u64);
                return false;
            }
            Enter::Zapping => unreachable!("nobody else has the window"),
        }
        let resident = (first..=last).filter(|&page| parent.pages.is_resident(page));
        let entered = resident.inspect(|&page| self.pages.enter(page)).count();
        assert_eq!(entered, pages, "a window counts its resident pages");
        true
    }
}
