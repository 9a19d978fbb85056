//! A file without the gaps that its readers leave out.
//!
//! Where all that is touched of a file lies in the same places of each period, the file is seen as
//! those pages alone, one after the other: a window, a block, a stream or a stride of such a file is
//! one of a file without gaps, and all patterns are found in it without a change. Pages of the file are
//! *physical* here, and their numbers without the gaps *logical*.
//!
//! ```text
//!   physical   0 1 2 3 4 5 6 7 8 9 ..     period 4, pages 0 and 1 of each
//!              x x . . x x . . x x
//!   logical    0 1     2 3     4 5
//! ```

use super::areas::Pages;
use core::ops::Range;

/// The longest period, in pages.
pub(super) const LONGEST: u64 = 128;
const WORDS: usize = LONGEST as usize / 64;

/// Which pages there are. Immutable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    period: u64,
    /// Pages of a period that there are.
    take: u64,
    /// Which: a bit each.
    phases: [u64; WORDS],
}

impl View {
    /// The pages of each period that are in `phases`, which are not none.
    pub(super) fn new(period: u64, phases: &Pages) -> View {
        let mut words = [0_u64; WORDS];
        for phase in 0..period {
            if phases.has(phase) {
                words[(phase / 64) as usize] |= 1 << (phase % 64);
            }
        }
        let take = words.iter().map(|word| u64::from(word.count_ones())).sum();
        assert!(take > 0 && period <= LONGEST);
        View {
            period,
            take,
            phases: words,
        }
    }

    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// The same with the place of one page more. None if that is all pages.
    pub(super) fn with(mut self, page: u64) -> Option<View> {
        let phase = page % self.period;
        self.phases[(phase / 64) as usize] |= 1 << (phase % 64);
        self.take += 1;
        (self.take < self.period).then_some(self)
    }

    fn has_phase(&self, phase: u64) -> bool {
        self.phases[(phase / 64) as usize] >> (phase % 64) & 1 != 0
    }

    pub(super) fn has(&self, page: u64) -> bool {
        self.has_phase(page % self.period)
    }

    /// How many pages there are in front of one. If that one is there too, that is its logical
    /// page.
    pub(super) fn rank(&self, page: u64) -> u64 {
        let phase = page % self.period;
        let mut rank = page / self.period * self.take;
        for (at, word) in (0..).step_by(64).zip(self.phases) {
            let below = match phase.saturating_sub(at) {
                0 => 0,
                64.. => u64::MAX,
                bits => u64::MAX >> (64 - bits),
            };
            rank += u64::from((word & below).count_ones());
        }
        rank
    }

    /// The physical page of a logical one.
    pub(super) fn page(&self, logical: u64) -> u64 {
        let mut left = logical % self.take;
        let mut phase = 0;
        for (at, mut word) in (0..).step_by(64).zip(self.phases) {
            let count = u64::from(word.count_ones());
            if left >= count {
                left -= count;
                continue;
            }
            for _ in 0..left {
                word &= word - 1;
            }
            phase = at + u64::from(word.trailing_zeros());
            break;
        }
        logical / self.take * self.period + phase
    }

    /// Takes the first logical pages that are a run of physical ones off a range, which is not empty; the run.
    pub(super) fn take_run(&self, logical: &mut Range<u64>) -> Range<u64> {
        let start = self.page(logical.start);
        let mut end = start;
        while !logical.is_empty() && self.has(end) {
            end += 1;
            logical.start += 1;
        }
        start..end
    }

    /// The pages around a page within a physical range, without a gap.
    pub(super) fn around(&self, page: u64, range: &Range<u64>) -> Range<u64> {
        let end = (page..range.end).take_while(|&page| self.has(page)).last();
        let start = (range.start..page)
            .rev()
            .take_while(|&page| self.has(page))
            .last();
        start.unwrap_or(page)..end.map_or(page + 1, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views() -> impl Iterator<Item = View> {
        [(1, 2), (3, 8), (63, 64), (64, 65), (99, 100), (127, 128)]
            .into_iter()
            .flat_map(|(take, period)| {
                let front = Pages::range(0..take);
                let mut others = Pages::range(0..period).without(&front);
                others.add(period - 1);
                [front, others].map(|phases| View::new(period, &phases))
            })
    }

    #[test]
    fn logical_pages_are_those_that_there_are() {
        for view in views() {
            let mut logical = 0;
            for page in 0..1000 {
                assert_eq!(view.rank(page), logical);
                if view.has(page) {
                    assert_eq!(view.page(logical), page, "{view:?}");
                    logical += 1;
                }
            }
        }
    }

    #[test]
    fn runs_are_all_of_a_range_and_end_at_gaps() {
        for view in views() {
            let runs = |mut logical: Range<u64>| {
                core::iter::from_fn(move || {
                    (!logical.is_empty()).then(|| view.take_run(&mut logical))
                })
            };
            let pages = runs(5..300).flatten();
            assert!(pages.eq((5..300).map(|logical| view.page(logical))));
            let ends = runs(0..300).map(|run| run.end);
            let inner = ends.take_while(|end| *end < view.page(299));
            assert_eq!(inner.filter(|&end| view.has(end)).count(), 0, "{view:?}");
            let page = view.page(40);
            let around = view.around(page, &(page.saturating_sub(9)..page + 9));
            assert!(around.contains(&page) && around.clone().all(|page| view.has(page)));
        }
    }
}
