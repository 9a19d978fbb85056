//! Nodes under one enclosing budget: the node that holds most gives first, whichever
//! node needs memory.
//!
//! A node that is short because of a budget of its own evicts its own folios.
//! One that is short because of a shared budget takes from the largest member,
//! so that a newcomer is not left with the memory that it had when memory became full.

use crate::budget::{InHand, Member};
use crate::cache::Node;
use sync::Arc;

impl Member for Node {
    fn held(&self) -> usize {
        self.lru.lists.mapped_pages() + self.frames.present() + self.anonymous_pages()
    }

    fn give(&self, pages: usize, in_hand: InHand) -> usize {
        self.reclaim_with(pages, in_hand)
    }
}

impl Node {
    /// Makes the node one of those that an enclosing budget can take from.
    /// [`delist`](Self::delist) comes before the last reference goes.
    pub fn enlist(self: &Arc<Self>) {
        let member: Arc<dyn Member> = self.clone();
        self.budget.enlist(&member);
    }

    /// Undoes `enlist`.
    pub fn delist(self: &Arc<Self>) {
        let member: Arc<dyn Member> = self.clone();
        self.budget.delist(&member);
    }

    /// Takes `pages` pages from the members of the budget that is short of
    /// them, if they are several; returns how many came back.
    pub(crate) fn reclaim_from_members(&self, pages: usize, in_hand: InHand) -> usize {
        match self.budget.short_of(pages as u64) {
            Some(short) if short.is_shared() => short.reclaim_from_members(pages, in_hand),
            _ => 0,
        }
    }
}
