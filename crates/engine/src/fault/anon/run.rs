//! First touches that run on: the pages behind the one that is touched are filled with it.
//!
//! Their number is an eighth of the pages before it that are not absent, with no gap between. A page that is
//! touched alone is filled alone, and of a run that ends at most an eighth was filled for nothing. Where the program says that
//! its touches run on (`Advice::Sequential`), as many are filled as lie before, and one at first. Under pressure such pages go
//! as any that was written.

use crate::PAGE_SIZE;
use crate::anon::pages::Found;
use crate::anon::{Anonymous, PageState};
use crate::mmu::TABLE_SPAN;
use crate::page::Advice;
use crate::policy::FirstTouch;
use core::ops::Range;

/// Pages before the one that is touched, for one behind it.
const PROOF: usize = 8;
/// Pages that are filled at once.
const MOST: usize = 64;

/// Pages of a run, locked by one thread, all of them absent. They stay so if it is dropped.
pub struct Run<'a> {
    anon: &'a Anonymous,
    pages: Range<usize>,
}

impl<'a> Run<'a> {
    /// Locks the pages behind `page` that are to be filled with it: not more than `room`, within one page table.
    pub fn behind(anon: &'a Anonymous, page: usize, room: usize, advice: Advice) -> Self {
        let first = page + 1;
        let mut run = Self {
            anon,
            pages: first..first,
        };
        let addr = anon.window.reservation().range().start + page * PAGE_SIZE;
        let of_table = (TABLE_SPAN - addr % TABLE_SPAN) / PAGE_SIZE - 1;
        let most = MOST.min(room).min(of_table);
        let (proof, least) = match advice {
            _ if anon.node.policies.first_touch == FirstTouch::Page => return run,
            Advice::Random => return run,
            Advice::Sequential => (1, 1),
            Advice::Normal => (PROOF, 0),
        };
        if anon.origin().is_some() {
            return run;
        }
        let before = (0..page).rev().take(proof * most);
        let before = before.take_while(|&page| !anon.pages.state(page).is_absent());
        let behind = (before.count() / proof).max(least).min(most);
        for next in first..first + behind {
            // What is locked, or kept for its level, is its own fault's.
            let found = anon.pages.find(next, &anon.node.budget);
            if found != Found::State(PageState::ABSENT)
                || !anon.pages.claim(next, PageState::ABSENT)
            {
                break;
            }
            run.pages.end = next + 1;
        }
        run
    }

    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Unlocks them as pages that were filled.
    pub fn filled(mut self) {
        self.unlock(PageState::ABSENT.to_dirty());
    }

    /// Unlocks them as they were.
    pub fn give_up(&mut self) {
        self.unlock(PageState::ABSENT);
    }

    fn unlock(&mut self, state: PageState) {
        for page in core::mem::take(&mut self.pages) {
            self.anon.pages.unlock(page, state);
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
