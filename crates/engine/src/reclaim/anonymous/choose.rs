//! Which pages are in a batch.

use super::{BATCH, EvictOutcome, PrivateBatch, Victim, WINDOWS};
use crate::anon::{Anonymous, PageState};
use crate::mmu::TABLE_SPAN;
use crate::reclaim::windows::{Busy, Choosing, Windows};
use crate::{PAGE_SHIFT, PAGE_SIZE};
use core::ops::Range;

/// Page tables' spans that are looked at while the windows are locked, with or without residents. Pages that were never touched are passed
/// over.
const SPANS: usize = 4096;
/// Once so many times as many residents were looked at as are wanted, all are taken
/// that can be.
const PATIENCE: usize = 8;

/// Pages that are taken out on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Resident pages: written if they have to be.
    Evicted,
    /// Everything: its bytes are not wanted any more.
    Forgotten,
}

/// A search of the hand for pages to evict.
struct Search {
    /// Pages that are wanted.
    target: usize,
    /// Residents that were met.
    looked: usize,
    /// Windows that the hand had left before.
    left_before: Option<usize>,
}

impl Search {
    /// True if pages go although they have passes left.
    fn takes_all(&self) -> bool {
        self.looked > self.target * PATIENCE
    }

    /// How often the hand goes round. Once to begin in the middle, once for each pass, and again; where there is nothing to pass, one
    /// round has seen all.
    fn rounds(&self) -> usize {
        match self.looked {
            0 => 1,
            _ => PATIENCE + 2,
        }
    }
}

impl PrivateBatch {
    /// Lets the hand choose about `target` pages, and lock them; `false` if it has met
    /// nothing that can go, or if there is `enough` meanwhile.
    pub(super) fn choose(
        &mut self,
        windows: &Windows,
        target: usize,
        enough: impl Fn() -> bool,
    ) -> bool {
        let mut search = Search {
            target: target.min(BATCH),
            looked: 0,
            left_before: None,
        };
        // Spans without a page that can go are no answer, however many there are. In between others get the windows' lock.
        while self.go_on(windows, &mut search) && self.victims.is_empty() && !enough() {}
        !self.victims.is_empty()
    }

    /// Lets the hand go on for so many spans, with the lock held; `false` if no more of the search is of use.
    fn go_on(&mut self, windows: &Windows, search: &mut Search) -> bool {
        let mut choosing = windows.choose();
        let left_before = *search.left_before.get_or_insert(choosing.left_windows());
        let (mut spans, mut skipped) = (0, 0);
        while self.victims.len() < search.target {
            if spans == SPANS {
                return true;
            }
            let Some((window, page)) = choosing.at_hand() else {
                break;
            };
            let anon = window.get();
            let page = anon.pages.next_used(page);
            if page >= anon.pages.count() {
                choosing.move_hand(None);
                skipped = 0;
                // Whoever moves the hand: all batches have the same one.
                let left = choosing.left_windows().wrapping_sub(left_before);
                if left > choosing.count() * search.rounds() {
                    break;
                }
                continue;
            }
            spans += 1;
            let end = (page | (TABLE_SPAN / PAGE_SIZE - 1)) + 1;
            let end = end.min(anon.pages.count());
            if anon.window.residents(anon.window.address(page as u64, 0)) == 0 {
                choosing.move_hand(Some(end));
                continue;
            }
            let next = self.pass(&mut choosing, window, page..end, search, &mut skipped);
            choosing.move_hand(Some(next));
            if next < end {
                break;
            }
        }
        false
    }

    fn place_of(&self, window: Busy) -> Option<usize> {
        let is = |known: &Busy| core::ptr::eq(known.get(), window.get());
        self.windows.iter().position(is)
    }

    /// The hand passes the pages of a span, and locks those that go; returns where it stops, for the batch is full. It stops before a page of
    /// one window more than a batch may have: a window that has nothing that goes takes nobody's place.
    fn pass(
        &mut self,
        choosing: &mut Choosing<'_>,
        window: Busy,
        pages: Range<usize>,
        search: &mut Search,
        skipped: &mut u32,
    ) -> usize {
        let anon = window.get();
        let mut place = self.place_of(window);
        for page in pages.clone() {
            if self.victims.len() == search.target {
                return page;
            }
            let state = anon.pages.state(page);
            if !state.is_resident() || state.stays() {
                continue;
            }
            search.looked += 1;
            if state.passes() > 0 && !search.takes_all() {
                anon.pages.change(page, state, state.passed());
                *skipped += 1;
                continue;
            }
            if place.is_none() && self.windows.len() == WINDOWS {
                return page;
            }
            if !anon.pages.claim(page, state) {
                *skipped += 1;
                continue;
            }
            // Busy only now: the windows' lock keeps it alive until then.
            let place = *place.get_or_insert_with(|| {
                choosing.make_busy(window);
                self.windows.push(window);
                self.windows.len() - 1
            });
            let fate = match state.is_clean() {
                true => EvictOutcome::Drops,
                false => EvictOutcome::Writes,
            };
            self.push((place, anon, page), state, fate, core::mem::take(skipped));
        }
        pages.end
    }

    fn push(
        &mut self,
        (window, anon, page): (usize, &Anonymous, usize),
        state: PageState,
        fate: EvictOutcome,
        skipped: u32,
    ) {
        self.victims.push(Victim {
            window,
            addr: anon.window.address(page as u64, 0),
            page,
            state,
            skipped,
            fate,
            sum: 0,
        });
    }

    /// Locks the pages of a range of a window, as many as there is room for, waiting
    /// for their locks; returns where to go on. The caller keeps the
    /// memory alive, and `window` is the batch's only one.
    pub(super) fn take(&mut self, window: Busy, range: Range<usize>, taken: Taken) -> usize {
        let anon = window.get();
        debug_assert!(self.windows.is_empty() && self.victims.is_empty());
        self.windows.push(window);
        let pages = anon.page_range(&range);
        let mut next = anon.pages.next_used(pages.start);
        let mut skipped = 0;
        while next < pages.end && !self.is_full() {
            let state = anon.pages.state(next);
            let wanted = match taken {
                Taken::Evicted => state.is_resident() && !state.stays(),
                Taken::Forgotten => !anon.pages.is_unused(next),
            };
            if wanted {
                let state = anon.pages.lock_bare(next);
                let is_of_use = match taken {
                    Taken::Evicted => state.is_resident() && !state.stays(),
                    Taken::Forgotten => !state.is_absent(),
                };
                let fate = match taken == Taken::Forgotten || state.is_clean() {
                    true => EvictOutcome::Drops,
                    false => EvictOutcome::Writes,
                };
                match is_of_use {
                    true => self.push((0, anon, next), state, fate, core::mem::take(&mut skipped)),
                    false => anon.pages.unlock(next, state),
                }
            } else if state.is_resident() {
                skipped += 1;
            }
            next = anon.pages.next_used(next + 1);
        }
        range.start + ((next.min(pages.end) - pages.start) << PAGE_SHIFT)
    }
}
