//! Which pages are in a batch.

use super::{BATCH, EvictOutcome, PrivateBatch, Victim, WINDOWS};
use crate::anon::{Anonymous, PageState};
use crate::mmu::TABLE_SPAN;
use crate::reclaim::windows::{Busy, Windows};
use crate::{PAGE_SHIFT, PAGE_SIZE};
use core::ops::Range;

/// Page tables' spans that are looked at for one batch, with or without residents. Pages that were never touched are passed over.
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

impl PrivateBatch {
    /// Lets the hand choose about `target` pages, and lock them; `false` if it has met
    /// nothing that can go.
    pub(super) fn choose(&mut self, windows: &Windows, target: usize) -> bool {
        let mut choosing = windows.choose();
        let target = target.min(BATCH);
        let (mut looked, mut spans, mut empty) = (0, 0, 0);
        let mut skipped = 0;
        while self.victims.len() < target && spans < SPANS {
            let Some((window, page)) = choosing.at_hand() else {
                break;
            };
            let anon = window.get();
            let page = anon.pages.next_used(page);
            if page >= anon.pages.count() {
                choosing.move_hand(None);
                empty += 1;
                skipped = 0;
                // Once round to begin in the middle, once for each pass, and again.
                if empty > choosing.count() * (PATIENCE + 2) {
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
            let place = match self.place_of(window) {
                Some(place) => place,
                None if self.windows.len() == WINDOWS => break,
                None => {
                    choosing.make_busy(window);
                    self.windows.push(window);
                    self.windows.len() - 1
                }
            };
            let mut next = page;
            while next < end && self.victims.len() < target {
                let state = anon.pages.state(next);
                if state.is_resident() && !state.stays() {
                    looked += 1;
                    let all = looked > target * PATIENCE;
                    if !self.pass(place, anon, next, state, all, &mut skipped) {
                        skipped += 1;
                    }
                }
                next += 1;
            }
            choosing.move_hand(Some(next));
        }
        !self.victims.is_empty()
    }

    fn place_of(&self, window: Busy) -> Option<usize> {
        let is = |known: &Busy| core::ptr::eq(known.get(), window.get());
        self.windows.iter().position(is)
    }

    /// The hand passes a resident: true if it is locked and in the batch.
    fn pass(
        &mut self,
        window: usize,
        anon: &Anonymous,
        page: usize,
        state: PageState,
        all: bool,
        skipped: &mut u32,
    ) -> bool {
        if state.passes() > 0 && !all {
            anon.pages.change(page, state, state.passed());
            return false;
        }
        let taken = anon.pages.claim(page, state);
        if taken {
            let fate = match state.is_clean() {
                true => EvictOutcome::Drops,
                false => EvictOutcome::Writes,
            };
            self.push((window, anon, page), state, fate, core::mem::take(skipped));
        }
        taken
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
