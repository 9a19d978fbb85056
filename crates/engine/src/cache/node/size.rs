//! The cost of a node's own memory, and the limits of its budget.

use super::{MIN_BYTES, Node, NodeError};
use crate::budget::{Budget, FLOOR, InHand};
use crate::cache::folio::Folio;
use crate::cache::frames::{CHUNK_PAGES, Frames};
use crate::lock::Mutex;
use crate::page::PAGE_SIZE;
use crate::reclaim::memory_wait::MemoryWaitLimit;

/// A folio's metadata, as a share of the page that it is at least.
const FOLIO_SHARE: usize = PAGE_SIZE / size_of::<Folio>();

/// The pages that are charged as long as a node lives.
pub(super) struct Size {
    /// Pages that the budget may be raised to. Immutable.
    most: usize,
    /// Pages of metadata charged for the whole life. Immutable.
    fixed: u64,
    /// Pages charged for folios; [`set_memory`](Node::set_memory) changes it.
    /// Taken outside of all other locks.
    shares: Mutex<u64>,
}

impl Size {
    /// Charges a node's initial pages, over a budget of `pages`, with `tables` bytes of tables.
    pub(super) fn charge(
        budget: &Budget,
        pages: usize,
        most: usize,
        tables: usize,
    ) -> Result<Self, NodeError> {
        // The first chunk of frames is paid for here, for good: a demand fault
        // always has frames to turn to.
        let fixed = (tables.div_ceil(PAGE_SIZE) + CHUNK_PAGES + 1) as u64;
        let shares = (pages / FOLIO_SHARE) as u64;
        let charge = fixed + shares;
        if !budget.hold(charge) {
            return Err(NodeError::NoMemory);
        }
        while !budget.try_charge(charge, FLOOR) {
            // The other members of an enclosing budget make room for a newcomer.
            // Nothing is short if pages were given back meanwhile.
            if let Some(short) = budget.short_of(charge + FLOOR) {
                let made = short.reclaim_from_members((charge + FLOOR) as usize, InHand::Nothing);
                if made == 0 && short.short_of(charge + FLOOR).is_some() {
                    budget.let_go(charge);
                    return Err(NodeError::NoMemory);
                }
            }
        }
        Ok(Self {
            most,
            fixed,
            shares: Mutex::new(shares),
        })
    }

    /// Gives all of it back, and the charge for chunks of frames.
    pub(super) fn give_back(&self, budget: &Budget, frames: &Frames) {
        let held = self.held();
        budget.let_go(held);
        budget.uncharge(held + frame_charges(frames));
    }

    fn held(&self) -> u64 {
        self.fixed + *self.shares.lock()
    }
}

/// Pages charged for chunks of frames, but for the first, which is `fixed`.
fn frame_charges(frames: &Frames) -> u64 {
    let chunks = frames.present() / CHUNK_PAGES;
    (chunks.saturating_sub(1) * (CHUNK_PAGES + 1)) as u64
}

impl Node {
    /// Changes the budget to `bytes` and reclaims down to it. Where maps, pins or
    /// private memory hold so much that faults could not go on, and where an enclosing
    /// budget cannot spare the cost of a larger one, the budget stays as it was.
    pub fn set_memory(&self, bytes: usize) -> Result<(), NodeError> {
        self.change_memory(bytes, |_| None)
    }

    /// The same, or where memory that cannot be evicted does not let the budget be so low, as low as that and an eighth for files.
    pub fn approach_memory(&self, bytes: usize) -> Result<(), NodeError> {
        self.change_memory(bytes, |stays| Some(stays + stays / 7 + FLOOR))
    }

    /// `higher`: the budget, in pages, where so many pages stay, if another one will do.
    fn change_memory(
        &self,
        bytes: usize,
        higher: impl Fn(u64) -> Option<u64>,
    ) -> Result<(), NodeError> {
        let pages = bytes / PAGE_SIZE;
        if pages * PAGE_SIZE < MIN_BYTES {
            return Err(NodeError::BudgetTooSmall);
        }
        if pages > self.size.most {
            return Err(NodeError::BudgetTooLarge);
        }
        let mut shares = self.size.shares.lock();
        let before = self.budget.limit();
        let _lowering = self.budget.lower();
        let mut pages = pages as u64;
        let (after, less) = loop {
            self.budget.set_limit(pages);
            let after = pages / FOLIO_SHARE as u64;
            let less = shares.saturating_sub(after);
            match self.reclaim_to_limit(less) {
                Ok(()) => break (after, less),
                Err(stays) => match higher(stays) {
                    Some(more) if (pages + 1..before).contains(&more) => pages = more,
                    _ => {
                        self.budget.set_limit(before);
                        return Err(NodeError::Held);
                    }
                },
            }
        };
        self.let_go(less);
        *shares -= less;
        if after > *shares {
            let more = after - *shares;
            if self.hold(more).is_err() {
                self.budget.set_limit(before);
                return Err(NodeError::NoMemory);
            }
            *shares = after;
        }
        Ok(())
    }

    /// Reclaims until the limit is kept, once `less` pages have been given back. The error is the pages that stay.
    fn reclaim_to_limit(&self, less: u64) -> Result<(), u64> {
        let held = self.budget.held();
        if held - less > self.budget.most_held() {
            return Err(held);
        }
        match self.reclaim_down(less) {
            true => Ok(()),
            false => Err(self.budget.charged()),
        }
    }

    /// Reclaims until the limit is kept, and leaves faults their floor, once `less` pages
    /// have been given back; false if the present pages cannot be evicted.
    fn reclaim_down(&self, less: u64) -> bool {
        let mut memory_wait = MemoryWaitLimit::new(&*self.clock);
        loop {
            let subscription = self.budget.subscribe();
            let charged = (self.budget.charged() + FLOOR).saturating_sub(less);
            let excess = charged.saturating_sub(self.budget.limit()) as usize;
            if excess == 0 {
                return true;
            }
            if memory_wait.is_over() {
                return false;
            }
            // Memory that was evicted and taken again at once could be evicted again.
            if self.reclaim(excess) >= excess {
                return true;
            }
            // Reads under way, and folios in the hands of others. That there are no folios
            // for a moment is no answer: a fault that has yet to take one has paid for it.
            if self.reclaim_from_members(excess, InHand::Nothing) == 0 {
                memory_wait.wait(subscription);
            }
        }
    }

    /// Pages that are charged for the node's own memory, and for private memory that
    /// can be evicted, by counting: all that the budget has been charged with, where no
    /// page of a file is mapped. Exact while nobody uses the node.
    pub fn charged_pages(&self) -> u64 {
        let slots = (self.swap.as_ref()).map_or(0, |swap| swap.slots.charged_pages());
        let held = self.size.held() + frame_charges(&self.frames);
        held + slots + self.private.windows.charged_pages()
    }
}
