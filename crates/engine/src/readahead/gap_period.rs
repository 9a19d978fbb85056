//! Regular gaps: which pages are touched, modulo a period.

use super::areas::{AREA, Pages};
use core::ops::Range;

/// The longest period, in pages. An area has two of them.
const LONGEST: u64 = 256;
/// Pages of a thousand that may be out of place.
const MISFIT: u64 = 60;
/// Touched pages of an area that show a period, at least.
const ENOUGH: u64 = 16;

/// The pages that are touched of each period: a table of records of several pages with
/// fields that nobody looks at, or columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GapPeriod {
    period: u16,
    /// Which page numbers of the file, modulo the period.
    phases: Pages,
}

impl GapPeriod {
    /// The shortest period of the touched pages of an area, from the first to the last:
    /// a reader may be in the middle of it. None if all pages between were touched.
    #[inline(never)]
    pub(super) fn of(number: u64, touched: &Pages) -> Option<GapPeriod> {
        let count = touched.count();
        let span = touched.span();
        if count < ENOUGH || (count - 1) * 8 > (span.end - span.start) * 7 {
            return None;
        }
        let period = period_of(touched, count)?;
        let gap_period = gap_period_of((number, period), touched, &span)?;
        gap_period
            .matches(number, touched, span)
            .then_some(gap_period)
    }

    /// True if most of the pages that are to be expected of a part of an area were touched: two runs with one gap between
    /// them have no period that explains both.
    #[inline(never)]
    fn matches(&self, number: u64, touched: &Pages, span: Range<u64>) -> bool {
        let mut expected = self.pages(number);
        expected = expected.and(&Pages::range(span));
        let count = expected.count();
        expected.and(touched).count() * 8 >= count * 7
    }

    /// True if it is a stride.
    pub(super) fn is_stride(&self) -> bool {
        self.phases.count() == 1
    }

    /// The pages of an area that are to be expected.
    #[inline(never)]
    pub(super) fn pages(&self, number: u64) -> Pages {
        let period = u64::from(self.period);
        let mut pages = Pages::NONE;
        let mut phase = number * AREA % period;
        for page in 0..AREA {
            if self.phases.has(phase) {
                pages.add(page);
            }
            phase = if phase + 1 == period { 0 } else { phase + 1 };
        }
        pages
    }
}

// Functions of their own, and loops: this runs deep in the fault handler's stack, where their variables do not add up.

/// The period that explains the touched pages best, or a part of it that does as well.
#[inline(never)]
fn period_of(touched: &Pages, count: u64) -> Option<u64> {
    // How many pages have no page a period further, or the other way round; of how many.
    let (mut best, mut least) = (0, u64::MAX);
    for period in 2..=LONGEST {
        let (differ, of) = touched.differ_from_moved(period);
        if of * 4 > count && differ * 1000 / of < least {
            (best, least) = (period, differ * 1000 / of);
        }
    }
    if least > MISFIT {
        return None;
    }
    // Where a page or two are out of place, a multiple of the period may fit better.
    let most = touched.differ_from_moved(best).0 + 4;
    (2..=best)
        .find(|&period| best.is_multiple_of(period) && touched.differ_from_moved(period).0 <= most)
}

/// The touched places of a period, if it has gaps.
#[inline(never)]
fn gap_period_of(
    (number, period): (u64, u64),
    touched: &Pages,
    span: &Range<u64>,
) -> Option<GapPeriod> {
    let mut gap_period = GapPeriod {
        period: period as u16,
        phases: phases_of((number, period), touched, span),
    };
    let part = part_of(&gap_period.phases, period)?;
    // None and all of the pages repeat after one.
    if part == 1 {
        return None;
    }
    gap_period.period = part as u16;
    gap_period.phases.truncate(part);
    Some(gap_period)
}

/// The pages of a period that most of the periods within `span` have: one page out of place is no gap, and none between
/// them.
#[inline(never)]
fn phases_of((number, period): (u64, u64), touched: &Pages, span: &Range<u64>) -> Pages {
    let mut phases = Pages::NONE;
    for page in 0..period {
        let (mut periods, mut having, mut at) = (0, 0, page);
        while at < AREA {
            if span.contains(&at) {
                periods += 1;
                having += u32::from(touched.has(at));
            }
            at += period;
        }
        if having * 2 > periods {
            phases.add((number * AREA + page) % period);
        }
    }
    phases
}

/// A pattern that repeats within the period has a shorter one.
#[inline(never)]
fn part_of(phases: &Pages, period: u64) -> Option<u64> {
    (1..=period).find(|&part| {
        period.is_multiple_of(part)
            && (0..period).all(|at| phases.has(at) == phases.has((at + part) % period))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_gaps_are_found_in_any_area() {
        for (take, of) in [
            (1, 2),
            (3, 8),
            (6, 8),
            (24, 32),
            (40, 100),
            (3, 7),
            (100, 200),
        ] {
            for number in [0, 1, 77, 1 << 40] {
                let area = |number: u64| {
                    let mut pages = Pages::NONE;
                    let pages_of = (0..AREA).filter(|page| (number * AREA + page) % of < take);
                    pages_of.for_each(|page| pages.add(page));
                    pages
                };
                let gap_period = GapPeriod::of(number, &area(number)).expect("regular");
                assert_eq!(u64::from(gap_period.period), of);
                assert_eq!(
                    gap_period.pages(number + 3),
                    area(number + 3),
                    "{take} of {of}"
                );
            }
        }
    }

    #[test]
    fn a_few_pages_more_or_less_do_no_harm() {
        let mut pages = Pages::NONE;
        (0..AREA)
            .filter(|page| page % 8 < 3 && *page != 40)
            .for_each(|page| pages.add(page));
        pages.add(303);
        let gap_period = GapPeriod::of(5, &pages).expect("regular");
        assert_eq!(gap_period.pages(9).count(), AREA / 8 * 3);
    }

    #[test]
    fn irregular_pages_have_no_period() {
        let mut pages = Pages::NONE;
        let mut word = 1_u64;
        for page in 0..AREA {
            // The xorshift generator of Marsaglia: no period that short.
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            if word.is_multiple_of(4) {
                pages.add(page);
            }
        }
        assert_eq!(GapPeriod::of(0, &pages), None);
        assert_eq!(GapPeriod::of(0, &Pages::range(0..AREA)), None);
        for pages in [1, AREA / 4, AREA / 2, AREA / 2 + 1, AREA / 4 * 3] {
            assert_eq!(GapPeriod::of(0, &Pages::range(0..pages)), None, "{pages}");
        }
        let mut backwards = Pages::range(0..AREA / 2);
        backwards.add(AREA - 1);
        assert_eq!(GapPeriod::of(0, &backwards), None);
    }
}
