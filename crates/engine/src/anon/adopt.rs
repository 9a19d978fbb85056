//! Taking over what a process inherited at its fork.

use super::pages::Pages;
use super::{Anonymous, ForkError};
use crate::cache::window::Enter;
use crate::cache::{Node, OnTruncate};
use crate::mmu::Reservation;
use crate::swap::Origin;
use sync::Arc;

impl Anonymous {
    /// In a forked process: the memory that `parent` was, on `node`, which is the child's
    /// own, in the window that the child has inherited. Its words were copied by the
    /// fork and are the child's from now on, and `parent` is not to be used any more,
    /// nor dropped. What is resident is charged.
    ///
    /// No page is locked: who forks keeps faults and reclaim out
    /// ([`Node::stop_eviction`]).
    pub fn adopt(
        node: Arc<Node>,
        parent: &Anonymous,
        reservation: Reservation,
        origin: Option<Origin>,
        on_truncate: OnTruncate,
    ) -> Result<Arc<Self>, ForkError> {
        let pages: Arc<Pages> = parent.pages.clone();
        let anon = Self::over(node, reservation, pages, origin, on_truncate);
        let anon = anon.map_err(ForkError::Mmu)?;
        let budget = &anon.node.budget;
        let words = anon.pages.paid_pages();
        if !budget.try_charge(words, 0) {
            return Err(ForkError::Budget);
        }
        for span in anon.window.spans(anon.addresses()) {
            let pages = anon.page_range(&span);
            let mut next = anon.pages.next_used(pages.start);
            let (mut residents, mut charged) = (0, 0);
            while next < pages.end {
                let state = anon.pages.state(next);
                residents += usize::from(state.is_resident());
                charged += u64::from(state.is_resident() && !state.is_zero());
                next = anon.pages.next_used(next + 1);
            }
            if residents == 0 {
                continue;
            }
            // What the fork has made resident is there: charged even where the child's
            // budget is less.
            if !budget.try_charge(charged, 0) {
                return Err(ForkError::Budget);
            }
            match anon.window.enter(span.start, residents, budget, 0) {
                Enter::Entered => anon.node.anonymous_in.add(charged),
                Enter::NoMemory | Enter::Zapping => {
                    budget.uncharge(charged);
                    return Err(ForkError::Budget);
                }
            }
        }
        Ok(anon)
    }
}
