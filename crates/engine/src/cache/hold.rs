//! Pages that a map holds as long as it lives: charged when it is made, or the map is refused.

use super::{MapError, Node};
use crate::budget::{FLOOR, InHand, Need};
use crate::reclaim::memory_wait::MemoryWaitLimit;
use sync::Arc;

/// Why a budget cannot hold a map. All are pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Pages that the map would hold, touched or not.
    pub needed: u64,
    /// Pages that may still be held.
    pub left: u64,
    /// The node's budget.
    pub limit: u64,
}

/// Pages that are charged until this is dropped.
pub struct HeldPages {
    node: Arc<Node>,
    pages: u64,
}

impl HeldPages {
    /// Charges so many pages for memory that is not the node's, and makes room for them, without a wait. `None` where maps would
    /// hold more than seven eighths of the budget, or where there is no room at once.
    pub fn new(node: &Arc<Node>, pages: u64) -> Option<Self> {
        let budget = &node.budget;
        if !budget.hold(pages) {
            return None;
        }
        // What is made others may take.
        const ATTEMPTS: usize = 8;
        for _ in 0..ATTEMPTS {
            if budget.try_charge(pages, FLOOR) {
                let node = node.clone();
                return Some(Self { node, pages });
            }
            let made = match budget.short_of(pages + FLOOR) {
                Some(short) if short.is_shared() => {
                    short.reclaim_from_members((pages + FLOOR) as usize, InHand::Nothing)
                }
                Some(_) => node.reclaim((pages + FLOOR) as usize),
                // Others have given some back.
                None => 1,
            };
            if made == 0 {
                break;
            }
        }
        budget.let_go(pages);
        None
    }
}

impl Drop for HeldPages {
    fn drop(&mut self) {
        self.node.let_go(self.pages);
    }
}

impl Node {
    /// Charges `pages` that stay until [`let_go`](Self::let_go), and makes room for them.
    /// Refused where maps would hold more than seven eighths of the budget, or where
    /// pages that cannot be evicted leave no room.
    pub(crate) fn hold(&self, pages: u64) -> Result<(), MapError> {
        let budget = &self.budget;
        if !budget.hold(pages) {
            return Err(self.shortage(pages, budget.may_hold()));
        }
        let need = Need::Pages((pages + FLOOR) as usize);
        let mut memory_wait = MemoryWaitLimit::new(&*self.clock);
        while !budget.try_charge(pages, FLOOR) {
            if memory_wait.is_over() {
                budget.let_go(pages);
                return Err(self.shortage(pages, budget.free().saturating_sub(FLOOR)));
            }
            let subscription = budget.subscribe();
            if !self.make_room(need) {
                memory_wait.wait(subscription);
            }
        }
        Ok(())
    }

    /// Gives back the charge of [`hold`](Self::hold).
    pub(crate) fn let_go(&self, pages: u64) {
        self.budget.let_go(pages);
        self.budget.uncharge(pages);
    }

    fn shortage(&self, needed: u64, left: u64) -> MapError {
        MapError::Budget(Shortage {
            needed,
            left,
            limit: self.budget.limit(),
        })
    }
}
