//! Guesses that a region is dense, and how they come out.

use super::areas::{Areas, Pages};
use super::density::LEVELS;

/// Guesses remembered, at most; and of each area.
const MOST: usize = 48;
const AN_AREA: usize = 4;
/// Touches without one in its area after which a guess has had its time; and, of one in front of
/// a reader, until it comes.
const QUIET: u32 = 512;
const QUIET_IN_FRONT: u32 = 4096;
/// Areas that a reader may be away from one in front of it.
const NEAR: u64 = 6;

/// The ranks by which guesses are trusted: each size of region, with gaps or without, around a reader or in
/// front, and the areas of a confined reader.
pub(super) const RANKS: usize = 4 * LEVELS + 1;

/// The first rank of guesses about later touches.
const IN_FRONT: usize = 2 * LEVELS;

/// The number of no area.
const NONE: u64 = u64::MAX;
// They are found as bits of a word.
const _: () = assert!(MOST <= 64);

/// Trust before anything is known, of 255: one wrong guess ends it.
const START: u8 = 208;
/// Four fifths: below it more than a quarter is read in vain.
const TRUSTED: u8 = 200;
/// Several guesses came true, and none did not.
const SURE: u8 = 230;
/// Many did.
const PROVEN: u8 = 250;

/// A guess, until it is judged.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    /// The rank that is trusted if it is right.
    rank: u8,
    /// Clock when it was made.
    stamp: u32,
    /// Pages that were read for it; none if it was only guessed.
    pub(super) pages: Pages,
    /// Pages by whose touches it is judged.
    visible: Pages,
}

impl Guess {
    const NONE: Guess = Guess {
        rank: 0,
        stamp: 0,
        pages: Pages::NONE,
        visible: Pages::NONE,
    };
}

/// The last guesses, and the results of those before. Protected by the lock of the page cache.
pub(super) struct Guesses {
    /// The area of each, or [`NONE`]: apart, as each touch goes through them.
    areas: Box<[u64]>,
    last: Box<[Guess]>,
    /// The next whose time is looked at.
    looked: u8,
    /// The next to be replaced.
    next: u8,
    /// Moving share of the right guesses, of 255, by rank: the size of the
    /// region, with gaps or without, around a reader or in front.
    trust: [u8; RANKS],
}

impl Guesses {
    /// None made yet, about so many areas.
    pub(super) fn new(areas: usize) -> Self {
        let most = (areas * AN_AREA).min(MOST);
        Self {
            areas: vec![NONE; most].into_boxed_slice(),
            looked: 0,
            last: vec![Guess::NONE; most].into_boxed_slice(),
            next: 0,
            trust: [START; RANKS],
        }
    }

    /// As if none was ever made.
    pub(super) fn forget_all(&mut self) {
        self.areas.fill(NONE);
        self.last.fill(Guess::NONE);
        self.trust = [START; RANKS];
    }

    pub(super) fn is_trusted(&self, rank: usize) -> bool {
        self.trust[rank] >= TRUSTED
    }

    pub(super) fn is_sure(&self, rank: usize) -> bool {
        self.trust[rank] >= SURE
    }

    pub(super) fn is_proven(&self, rank: usize) -> bool {
        self.trust[rank] >= PROVEN
    }

    /// The guesses about an area.
    pub(super) fn about(&self, area: u64) -> impl Iterator<Item = usize> + use<> {
        let mut found = 0_u64;
        for (at, other) in self.areas.iter().enumerate() {
            found |= u64::from(*other == area) << at;
        }
        core::iter::from_fn(move || {
            let at = found.trailing_zeros() as usize;
            found &= found.wrapping_sub(1);
            (at < MOST).then_some(at)
        })
    }

    /// A guess whose time is to be looked at: each in its turn.
    pub(super) fn next_to_look_at(&mut self) -> usize {
        let at = usize::from(self.looked);
        self.looked = ((at + 1) % self.last.len()) as u8;
        at
    }

    /// A guess, and the area that it is about.
    pub(super) fn get(&self, at: usize) -> (u64, &Guess) {
        (self.areas[at], &self.last[at])
    }

    pub(super) fn drop(&mut self, at: usize) {
        self.areas[at] = NONE;
        self.last[at] = Guess::NONE;
    }

    /// Where a guess is to be remembered, and whether it is new there: with one about the same
    /// area and kind of region, or in a place whose guess, if it has one, goes before its time.
    pub(super) fn place(&mut self, area: u64, rank: usize) -> (usize, bool) {
        let same = |at: &usize| usize::from(self.last[*at].rank) == rank;
        if let Some(at) = self.about(area).find(same) {
            return (at, false);
        }
        let free = self.about(NONE).next();
        let at = free.unwrap_or(usize::from(self.next));
        self.next = ((at + 1) % self.last.len()) as u8;
        (at, true)
    }

    /// Begins a guess in a place that has none.
    pub(super) fn begin(&mut self, at: usize, area: u64, rank: usize, clock: u32) {
        self.areas[at] = area;
        let guess = &mut self.last[at];
        guess.rank = rank as u8;
        guess.stamp = clock;
    }

    /// `pages` are read for a guess, and by `visible` it is judged.
    pub(super) fn add(&mut self, at: usize, pages: &Pages, visible: &Pages, clock: u32) {
        let guess = &mut self.last[at];
        guess.pages = guess.pages.or(pages);
        guess.visible = guess.visible.or(visible);
        guess.stamp = clock;
    }

    /// Pages of an area were not read after all.
    pub(super) fn forget(&mut self, area: u64, pages: &Pages) {
        for at in self.about(area) {
            let guess = &mut self.last[at];
            guess.pages = guess.pages.without(pages);
            guess.visible = guess.visible.without(pages);
        }
    }

    /// True of a guess that came true, and of one that had its time.
    pub(super) fn is_over(&self, at: usize, clock: u32, areas: &Areas) -> bool {
        let guess = &self.last[at];
        let Some(area) = areas.find(self.areas[at]) else {
            return self.areas[at] != NONE;
        };
        let left = match guess.pages.is_empty() {
            true => guess.visible.without(&area.touched),
            false => guess.pages.and(&area.ahead),
        };
        let quiet = clock.wrapping_sub(guess.stamp).min(area.age(clock));
        let is_late = || match usize::from(guess.rank) {
            ..IN_FRONT => quiet > QUIET,
            _ => quiet > QUIET_IN_FRONT && !has_reader_near(areas, self.areas[at], clock),
        };
        left.is_empty() || is_late()
    }

    /// Learns from a guess.
    pub(super) fn sample(&mut self, at: usize, touched: &Pages) {
        let guess = &self.last[at];
        let of = guess.visible.count();
        if of == 0 {
            return;
        }
        let share = (guess.visible.and(touched).count() * 255 / of) as u8;
        let trust = &mut self.trust[usize::from(guess.rank)];
        *trust = match share >= *trust {
            true => *trust + (share - *trust).div_ceil(4),
            false => *trust - (*trust - share).div_ceil(4),
        };
    }
}

/// True if an area near this one was touched of late: the reader may still reach it. Where several areas are read in
/// front, and each of their pages is a touch, that takes longer than any fixed number of touches.
#[inline(never)]
fn has_reader_near(areas: &Areas, number: u64, clock: u32) -> bool {
    let near = number.saturating_sub(NEAR)..=number.saturating_add(NEAR);
    let mut near = near.filter_map(|number| areas.find(number));
    near.any(|area| area.age(clock) <= QUIET && !area.touched.is_empty())
}
