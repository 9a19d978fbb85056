//! Guesses that a region is dense, and how they come out.

use super::areas::{Areas, Pages};
use super::density::LEVELS;

/// Guesses remembered, at most; and of each area.
const MOST: usize = 16;
const AN_AREA: usize = 4;
/// Touches after which a guess has had its time, beside four for each page.
const TIME: u32 = 512;

/// Trust before anything is known, of 255: one wrong guess ends it.
const START: u8 = 208;
/// Four fifths: below it more than a quarter is read in vain.
const TRUSTED: u8 = 200;
/// Several guesses came true, and none did not.
const SURE: u8 = 230;

/// A guess, until it is judged.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    pub(super) area: u64,
    /// What is trusted if it is right.
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
        area: u64::MAX,
        rank: 0,
        stamp: 0,
        pages: Pages::NONE,
        visible: Pages::NONE,
    };

    pub(super) fn new(area: u64, rank: usize, pages: Pages, visible: Pages, clock: u32) -> Self {
        Self {
            area,
            rank: rank as u8,
            stamp: clock,
            pages,
            visible,
        }
    }

    fn is_none(&self) -> bool {
        self.area == u64::MAX
    }
}

/// The last guesses, and what became of those before. Protected by the lock of the page cache.
pub(super) struct Guesses {
    last: Box<[Guess]>,
    /// The next to be replaced.
    next: u8,
    /// Moving share of what was guessed right, of 255, by size of the
    /// region; with gaps, after all that are without.
    trust: [u8; 2 * LEVELS],
}

impl Guesses {
    /// None made yet, about so many areas.
    pub(super) fn new(areas: usize) -> Self {
        let most = (areas * AN_AREA).min(MOST);
        Self {
            last: vec![Guess::NONE; most].into_boxed_slice(),
            next: 0,
            trust: [START; 2 * LEVELS],
        }
    }

    pub(super) fn is_trusted(&self, rank: usize) -> bool {
        self.trust[rank] >= TRUSTED
    }

    pub(super) fn is_sure(&self, rank: usize) -> bool {
        self.trust[rank] >= SURE
    }

    /// Remembers a guess, with one about the same area if there is one; returns the one that
    /// made room for it before it had its time.
    pub(super) fn push(&mut self, guess: Guess) -> Option<Guess> {
        let same = |other: &&mut Guess| other.area == guess.area && other.rank == guess.rank;
        if let Some(other) = self.last.iter_mut().find(same) {
            if !guess.pages.is_empty() {
                other.pages = other.pages.or(&guess.pages);
                other.visible = other.visible.or(&guess.visible);
                other.stamp = guess.stamp;
            }
            return None;
        }
        let free = self.last.iter().position(Guess::is_none);
        let at = free.unwrap_or(usize::from(self.next));
        self.next = ((at + 1) % self.last.len()) as u8;
        let old = core::mem::replace(&mut self.last[at], guess);
        (!old.is_none()).then_some(old)
    }

    /// Takes out a guess about an area.
    pub(super) fn take_of(&mut self, area: u64) -> Option<Guess> {
        let guess = self.last.iter_mut().find(|guess| guess.area == area)?;
        Some(core::mem::replace(guess, Guess::NONE))
    }

    /// Takes out a guess about an area that came true, or any that had its time.
    pub(super) fn take_over(&mut self, area: u64, clock: u32, areas: &Areas) -> Option<Guess> {
        let is_over = |guess: &Guess| {
            let time = TIME + 4 * guess.visible.count() as u32;
            let is_old = clock.wrapping_sub(guess.stamp) > time;
            let left = || match areas.find(area) {
                Some(area) if guess.pages.is_empty() => guess.visible.without(&area.touched),
                Some(area) => guess.pages.and(&area.ahead),
                None => Pages::NONE,
            };
            !guess.is_none() && (is_old || guess.area == area && left().is_empty())
        };
        let guess = self.last.iter_mut().find(|guess| is_over(guess))?;
        Some(core::mem::replace(guess, Guess::NONE))
    }

    /// Learns from a guess.
    pub(super) fn sample(&mut self, guess: &Guess, touched: &Pages) {
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
