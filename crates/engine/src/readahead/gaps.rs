//! Whether all that is touched of a file lies in the same places of some period.
//!
//! The search goes over the remembered touches of all areas together, where touches go on to miss: half
//! of an area need not have been touched for that. For each period up to [`LONGEST`] pages,
//! touches are counted by their place in it. That the places of none are gaps, and not chance, is
//! worth `touches × ln(places / places touched)`, less the cost of naming them.

use super::areas::{Area, Areas, Pages, mixed};
use super::view::{LONGEST, View};

/// Touches that are looked at, at most.
const SAMPLE: usize = 1024;
/// Touches for each place that is no gap, at least: a place that none of them met is one.
const ENOUGH: u64 = 10;
/// Periods in which there was a touch, at least.
const PERIODS: usize = 16;
/// The least worth of a view, in powers of e.
const WORTH: f32 = 24.0;
/// Misses until the first look; then twice as many each time, up to the last.
const FIRST: u32 = 64;
const LAST: u32 = 1 << 14;
/// A touch in a gap adds this much, and this much ends a view; a touch in its place takes one off.
const STRANGE: u32 = 16;
const TOO_STRANGE: u32 = 128;
/// Touches in one place of the period that show that it is no gap.
const NO_GAP: u8 = 3;

/// When to look, and where touches were. Protected by the lock of the page cache.
pub(super) struct Gaps {
    /// Misses until the next look, and from that to the one after it.
    left: u32,
    wait: u32,
    /// Touches in gaps of late.
    strange: u32,
    /// Of these, how many in each place of the period.
    in_gaps: [u8; LONGEST as usize],
    touched: Sample,
    left_out: Sample,
    counts: Box<Counts>,
}

/// Of a period that is looked at, by place. Not on the stack, which may be the fault handler's.
struct Counts {
    touches: [u16; LONGEST as usize],
    without: [u16; LONGEST as usize],
}

impl Gaps {
    pub(super) fn new() -> Gaps {
        Gaps {
            left: FIRST,
            wait: FIRST,
            strange: 0,
            in_gaps: [0; LONGEST as usize],
            touched: Sample::new(),
            left_out: Sample::new(),
            counts: Box::new(Counts {
                touches: [0; LONGEST as usize],
                without: [0; LONGEST as usize],
            }),
        }
    }

    /// A miss without a view; the view that there is now.
    pub(super) fn missed(&mut self, areas: &Areas) -> Option<View> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        self.wait = (self.wait * 2).min(LAST);
        self.left = self.wait;
        self.look(areas)
    }

    /// A touch where there is a view; the view that there is from now on.
    pub(super) fn touched(&mut self, view: View, page: u64) -> Option<View> {
        if view.has(page) {
            self.strange = self.strange.saturating_sub(1);
            return Some(view);
        }
        self.strange += STRANGE;
        let touches = &mut self.in_gaps[(page % view.period()) as usize];
        *touches += 1;
        if *touches >= NO_GAP {
            self.forget_touches();
            return view.with(page);
        }
        match self.strange > TOO_STRANGE {
            true => self.end(),
            false => Some(view),
        }
    }

    /// There is no view any more: the next takes longer to be believed.
    pub(super) fn end(&mut self) -> Option<View> {
        self.forget_touches();
        self.wait = (self.wait * 4).clamp(FIRST * 16, LAST);
        self.left = self.wait;
        None
    }

    fn forget_touches(&mut self) {
        self.strange = 0;
        self.in_gaps.fill(0);
    }

    #[inline(never)]
    fn look(&mut self, areas: &Areas) -> Option<View> {
        let touched = self.touched.draw(areas, |area| area.seen);
        // Between the first touch and the last; touches of pages mapped with others are unknown.
        let left_out = |area: &Area| Pages::range(area.seen.span()).without(&area.mapped);
        let left_out = self.left_out.draw(areas, left_out);
        let mut best: Option<(f32, View)> = None;
        for period in 2..=LONGEST {
            if let Some((worth, view)) = of_period(&touched, &left_out, period, &mut self.counts)
                && best.is_none_or(|(most, _)| worth > most)
            {
                best = Some((worth, view));
            }
        }
        best.map(|(_, view)| view)
    }
}

/// Where pages are drawn into.
struct Sample(Box<[u64]>);

/// Some of all pages.
struct Drawn<'a> {
    pages: &'a [u64],
    of: u64,
}

impl Sample {
    fn new() -> Sample {
        Sample(vec![0; SAMPLE].into_boxed_slice())
    }

    /// Draws some of `pages` of all areas.
    fn draw(&mut self, areas: &Areas, pages: impl Fn(&Area) -> Pages) -> Drawn<'_> {
        let of: u64 = areas.iter().map(|area| pages(area).count()).sum();
        let mut count = 0;
        for area in areas.iter() {
            let pages = pages(area);
            let mut from = 0;
            while let Some(run) = pages.run_from(from) {
                from = run.end;
                for page in run.map(|bit| area.first() + bit) {
                    let is_drawn = ((mixed(page) >> 32) * of) >> 32 < SAMPLE as u64;
                    if is_drawn && count < SAMPLE {
                        self.0[count] = page;
                        count += 1;
                    }
                }
            }
        }
        Drawn {
            pages: &self.0[..count],
            of,
        }
    }
}

/// The view of a period, and its worth. None if it is not worth enough.
fn of_period(
    touched: &Drawn<'_>,
    left_out: &Drawn<'_>,
    period: u64,
    counts: &mut Counts,
) -> Option<(f32, View)> {
    let touches = &mut counts.touches[..period as usize];
    touches.fill(0);
    let (mut periods, mut last) = (0, u64::MAX);
    for page in touched.pages {
        touches[(page % period) as usize] += 1;
        periods += usize::from(page / period != last);
        last = page / period;
    }
    let count = touched.pages.len() as u64;
    let places = touches.iter().filter(|&&touches| touches > 0).count() as u64;
    if count < places * ENOUGH || periods < PERIODS {
        return None;
    }
    let without = &mut counts.without[..period as usize];
    without.fill(0);
    for page in left_out.pages {
        without[(page % period) as usize] += 1;
    }
    // A single touch out of place makes no place: a quarter of the touches of the others does. Nor is it a gap
    // where nothing was to be seen.
    let mut phases = Pages::NONE;
    let (mut take, mut strange, mut avoided) = (0, 0, 0);
    for (phase, (&touches, &without)) in (0..).zip(touches.iter().zip(&*without)) {
        let is_touched = u64::from(touches) * places * 4 >= count;
        let is_unknown = u64::from(without) * period * 8 < left_out.pages.len() as u64;
        if is_touched || is_unknown {
            phases.add(phase);
            take += 1;
        } else {
            strange += u64::from(touches);
            avoided += u64::from(without);
        }
    }
    if strange * 32 > count || take == 0 || take == period {
        return None;
    }
    let all = (touched.of + left_out.of) as f32;
    let avoided = avoided as f32 / left_out.pages.len().max(1) as f32 * left_out.of as f32;
    let gain = (all / (all - avoided)).ln() * count as f32;
    let cost = choices(period, take) + strange as f32 * (period as f32).ln();
    let worth = gain - cost;
    (worth >= WORTH).then(|| (worth, View::new(period, &phases)))
}

/// The logarithm of how many ways there are to choose `take` of `of`.
fn choices(of: u64, take: u64) -> f32 {
    (0..take.min(of - take))
        .map(|at| ((of - at) as f32 / (at + 1) as f32).ln())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::areas::AREA;
    use super::*;

    /// Areas in which the pages that `is_touched` says were touched, of about one of `one_of`.
    fn areas(one_of: u64, is_touched: impl Fn(u64) -> bool) -> Areas {
        let mut areas = Areas::new(1 << 20);
        for number in (0..40).map(|at| at * 3) {
            let area = areas.touch(number, 1);
            for bit in 0..AREA {
                let page = number * AREA + bit;
                if is_touched(page) && mixed(page ^ 77).is_multiple_of(one_of) {
                    area.seen.add(bit);
                    area.touched.add(bit);
                    area.mapped.add(bit);
                }
            }
        }
        areas
    }

    fn view(areas: &Areas) -> Option<View> {
        let mut gaps = Gaps::new();
        let mut misses = (0..FIRST).map(|_| gaps.missed(areas));
        misses.find_map(|view| view)
    }

    #[test]
    fn gaps_are_found_where_a_few_pages_of_each_area_were_touched() {
        for (take, of) in [
            (1, 5),
            (3, 8),
            (7, 8),
            (10, 53),
            (50, 89),
            (72, 98),
            (3, 100),
        ] {
            let is_place = |page: u64| page % of < take;
            let view = view(&areas(4, is_place)).expect("regular");
            assert!((0..AREA).all(|page| view.has(page) == is_place(page)));
            let strays = areas(4, |page| {
                is_place(page) || mixed(page).is_multiple_of(64 * of / take)
            });
            let mut gaps = Gaps::new();
            let with_strays = gaps.look(&strays);
            assert!(
                with_strays.is_none_or(|other| other == view),
                "{take} of {of}: {with_strays:?}"
            );
        }
    }

    #[test]
    fn no_gaps_are_found_where_there_are_none() {
        for one_of in [1, 2, 7, 40] {
            assert_eq!(view(&areas(one_of, |_| true)), None, "one of {one_of}");
        }
        // In order, and not at its end yet.
        let front = |page: u64| page % AREA < 100;
        let some = areas(1, front);
        assert_eq!(view(&some), None, "the front of each area");
        // Records at drawn places.
        let drawn = |page: u64| mixed(page / 32).is_multiple_of(5);
        assert_eq!(view(&areas(1, drawn)), None, "records");
    }

    #[test]
    fn a_place_is_taken_in_and_a_view_that_is_wrong_ends() {
        let places = Pages::range(0..71);
        let view = View::new(98, &places);
        let mut gaps = Gaps::new();
        let touch = |gaps: &mut Gaps, page| gaps.touched(view, page);
        for page in [71, 98 + 71] {
            assert_eq!(touch(&mut gaps, page), Some(view));
        }
        assert_eq!(touch(&mut gaps, 5 * 98 + 71), view.with(71));
        assert!(view.with(71).is_some_and(|view| view.has(71)));
        let ends = (80..90).find(|&page| touch(&mut gaps, page).is_none());
        assert_eq!(ends, Some(88));
        // One in twenty is borne.
        let mut gaps = Gaps::new();
        for touch in 0..2000 {
            let page = if touch % 20 == 0 {
                72 + touch / 20 % 20
            } else {
                3
            };
            let now = gaps.touched(view, page);
            assert!(now.is_some());
            gaps.in_gaps.fill(0);
        }
    }
}
