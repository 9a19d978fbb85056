//! First touches of which others are likely to follow: pages that are filled with the one that is touched.
//!
//! *Where touches run on*, the pages behind it. Their number is an eighth of the pages before it that are not absent, with no gap
//! between. A page that is touched alone is filled alone, and of a run that ends at most an eighth was filled for nothing. Where the
//! program says that its touches run on (`Advice::Sequential`), as many are filled as lie before, and one at first.
//!
//! *In a small mapping*, the pages that others of its size were written to before (`anon/habits.rs`).
//!
//! Under pressure such pages go as any that was written.

use crate::PAGE_SIZE;
use crate::anon::habits::LARGEST;
use crate::anon::pages::Found;
use crate::anon::{Anonymous, PageState};
use crate::mmu::TABLE_SPAN;
use crate::page::Advice;
use crate::policy::FirstTouch;
use core::ops::Range;

/// Pages before the one that is touched, for one behind it.
const PROOF: usize = 8;
/// Pages that are filled at once.
const MOST: usize = u64::BITS as usize;

/// The part of a VMA around the touched page.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// Pages behind it.
    pub behind: usize,
    /// All of the memory is shown, in a row.
    pub is_whole: bool,
}

/// Pages that are filled beside one, locked by one thread, all of them absent. They stay so if it is dropped.
pub struct Run<'a> {
    anon: &'a Anonymous,
    /// The page that the first bit is for.
    first: usize,
    /// A bit for each.
    pages: u64,
}

impl<'a> Run<'a> {
    /// Locks the pages that are to be filled with `page`, where a VMA shows so much.
    pub fn with(anon: &'a Anonymous, page: usize, shown: Shown, advice: Advice) -> Self {
        let is_alone = anon.node.policies.first_touch == FirstTouch::Page
            || advice == Advice::Random
            || anon.private_file().is_some();
        match is_alone {
            true => Self::of(anon, page, 0),
            false => Self::as_others(anon, page, shown)
                .unwrap_or_else(|| Self::behind(anon, page, shown.behind, advice)),
        }
    }

    /// Of nothing yet.
    fn of(anon: &'a Anonymous, first: usize, pages: u64) -> Self {
        Self { anon, first, pages }
    }

    /// The pages that small mappings of this size are written to.
    fn as_others(anon: &'a Anonymous, page: usize, shown: Shown) -> Option<Self> {
        let size = anon.pages.count();
        if size > LARGEST || !shown.is_whole || !anon.first_writes.is_new() {
            return None;
        }
        let wanted = anon.node.habits.fill(size, page);
        if wanted == 0 {
            return None;
        }
        anon.first_writes.fills();
        let mut run = Self::of(anon, 0, 0);
        for next in (0..size).filter(|page| wanted >> page & 1 == 1) {
            run.lock(next);
        }
        Some(run)
    }

    /// The pages behind `page` that are to be filled with it: not more than `room`, within one page table.
    fn behind(anon: &'a Anonymous, page: usize, room: usize, advice: Advice) -> Self {
        let first = page + 1;
        let mut run = Self::of(anon, first, 0);
        let addr = anon.window.reservation().range().start + page * PAGE_SIZE;
        let of_table = (TABLE_SPAN - addr % TABLE_SPAN) / PAGE_SIZE - 1;
        let most = MOST.min(room).min(of_table);
        let (proof, least) = match advice {
            Advice::Sequential => (1, 1),
            _ => (PROOF, 0),
        };
        let before = (0..page).rev().take(proof * most);
        let before = before.take_while(|&page| !anon.pages.state(page).is_absent());
        let behind = (before.count() / proof).max(least).min(most);
        for next in first..first + behind {
            if !run.lock(next) {
                break;
            }
        }
        run
    }

    /// A page that is locked, or kept for its level, is left to its own fault.
    fn lock(&mut self, page: usize) -> bool {
        let anon = self.anon;
        let found = anon.pages.find(page, &anon.node.budget);
        let locked =
            found == Found::State(PageState::ABSENT) && anon.pages.claim(page, PageState::ABSENT);
        self.pages |= u64::from(locked) << (page - self.first);
        locked
    }

    /// How many they are.
    pub fn pages(&self) -> usize {
        self.pages.count_ones() as usize
    }

    fn has(&self, page: usize) -> bool {
        let place = page.wrapping_sub(self.first);
        place < MOST && self.pages >> place & 1 == 1
    }

    /// `page`, and those that it makes one range with.
    pub fn around(&self, page: usize) -> Range<usize> {
        let mut range = page..page + 1;
        while self.has(range.end) {
            range.end += 1;
        }
        while range.start > 0 && self.has(range.start - 1) {
            range.start -= 1;
        }
        range
    }

    /// The first range of them that are neighbours.
    pub fn next(&self) -> Option<Range<usize>> {
        let place = self.pages.trailing_zeros() as usize;
        (self.pages != 0).then(|| self.around(self.first + place))
    }

    /// Unlocks those of a range, as pages that were filled.
    pub fn filled(&mut self, range: Range<usize>) {
        self.unlock(range, PageState::ABSENT.to_dirty());
    }

    /// Unlocks them as they were.
    pub fn give_up(&mut self) {
        self.unlock(self.first..self.first + MOST, PageState::ABSENT);
    }

    fn unlock(&mut self, range: Range<usize>, state: PageState) {
        for page in range {
            if self.has(page) {
                self.pages &= !(1 << (page - self.first));
                self.anon.pages.unlock(page, state);
            }
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
