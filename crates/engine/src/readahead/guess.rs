//! Guesses that a region is dense, and how they come out.

use super::areas::{Area, Areas, Pages};
use super::density::LEVELS;

/// Guesses remembered, at most; and of each area.
const MOST: usize = 16;
const AN_AREA: usize = 4;
/// Touches without one in its area after which a guess has had its time.
const QUIET: u32 = 512;
/// Touches after which it has had its time however that is, beside 64 for each page.
const TIME: u32 = 4096;

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

    /// How many there may be.
    pub(super) fn len(&self) -> usize {
        self.last.len()
    }

    pub(super) fn get(&self, at: usize) -> &Guess {
        &self.last[at]
    }

    pub(super) fn drop(&mut self, at: usize) {
        let guess = &mut self.last[at];
        guess.area = u64::MAX;
        (guess.pages, guess.visible) = (Pages::NONE, Pages::NONE);
    }

    /// Where a guess is to be remembered, and whether it is new there: with one about the same
    /// area and kind of region, or in a place whose guess, if it has one, goes before its time.
    pub(super) fn place(&mut self, area: u64, rank: usize) -> (usize, bool) {
        let same = |other: &Guess| other.area == area && usize::from(other.rank) == rank;
        if let Some(at) = self.last.iter().position(same) {
            return (at, false);
        }
        let free = self.last.iter().position(Guess::is_none);
        let at = free.unwrap_or(usize::from(self.next));
        self.next = ((at + 1) % self.last.len()) as u8;
        (at, true)
    }

    /// Begins a guess in a place that has none.
    pub(super) fn begin(&mut self, at: usize, area: u64, rank: usize, clock: u32) {
        let guess = &mut self.last[at];
        guess.area = area;
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
        for guess in self.last.iter_mut().filter(|guess| guess.area == area) {
            guess.pages = guess.pages.without(pages);
            guess.visible = guess.visible.without(pages);
        }
    }

    /// True of a guess about an area if it came true, and of any that had its time.
    pub(super) fn is_over(&self, at: usize, area: u64, clock: u32, areas: &Areas) -> bool {
        let guess = &self.last[at];
        if guess.is_none() {
            return false;
        }
        let age = clock.wrapping_sub(guess.stamp);
        let known = areas.find(guess.area);
        let quiet = known.map_or(age, |area| area.age(clock));
        let time = TIME + 64 * guess.visible.count() as u32;
        let left = |area: &Area| match guess.pages.is_empty() {
            true => guess.visible.without(&area.touched),
            false => guess.pages.and(&area.ahead),
        };
        age.min(quiet) > QUIET
            || age > time
            || guess.area == area && known.is_none_or(|area| left(area).is_empty())
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
