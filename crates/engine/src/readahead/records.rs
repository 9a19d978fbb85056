//! Pages that are touched beside a page whose touch followed no pattern.
//!
//! A *record* begins with a miss that has no other near it: a key looked up, a chunk read at a
//! place that cannot be foreseen. Pages that are touched within 64 pages of it afterwards are learned
//! in two ways: by distance from the first touch, and by aligned regions of 8 to 64 pages. Pages that
//! were touched in four of five of the last records are read with the first touch of the next.
//! Aligned regions of 128 to 512 pages are learned from density's record of them.
//! (Footprints by the page that is touched first are from Somogyi et al., "Spatial Memory
//! Streaming", ISCA 2006, <https://doi.org/10.1109/ISCA.2006.38>.)
//!
//! Of eight records one is read page by page, to see which pages are no longer touched.

use super::areas::{AREA, Area, Blocks, Pages, samples};
use super::{Event, Touch};
use core::ops::Range;

/// Records that are watched at a time.
const OPEN: usize = 16;
/// Pages on each side of the first touch.
const REACH: u64 = 64;
/// A record in so many is read page by page.
const SAMPLE: u32 = 8;
/// Four fifths, of 255.
pub(super) const LIKELY: u8 = 204;
/// Sizes of aligned regions: 8, 16, 32, 64 pages.
const SIZES: usize = 4;

/// Sizes of wide ones.
const WIDE: [u64; 3] = [128, 256, 512];

/// A set of distances from a page, from -64 to 63: a bit each.
type Distances = u128;

#[derive(Clone, Copy)]
struct Record {
    /// The page touched first. Of a free place, `u64::MAX`.
    first: u64,
    touched: Distances,
    /// Pages that were mapped with a touch of another: their touches are unknown.
    hidden: Distances,
}

impl Record {
    const FREE: Record = Record {
        first: u64::MAX,
        touched: 0,
        hidden: 0,
    };

    /// The bit of a page, if it is near.
    fn bit(&self, page: u64) -> Option<Distances> {
        let at = page.wrapping_sub(self.first).wrapping_add(REACH);
        (at < 2 * REACH && self.first != u64::MAX).then(|| 1 << at)
    }

    /// The bits of an aligned region around the first page.
    fn region(&self, size: u64) -> Distances {
        let before = self.first % size;
        let bits = (1 << size) - 1;
        bits << (REACH - before)
    }
}

/// Protected by the lock of the page cache.
pub(super) struct Records {
    open: [Record; OPEN],
    /// The next to be replaced.
    next: u8,
    /// How often a page at a distance was touched, of 255: a moving share.
    by_distance: [u8; 2 * REACH as usize],
    /// How much of an aligned region was touched.
    by_region: [u8; SIZES],
    by_wide_region: [u8; WIDE.len()],
    /// The last record was a page alone, and changed no share: nor does the next such one, and nothing is likely but wide regions.
    is_settled: bool,
    /// Records seen, wrapping.
    count: u32,
}

/// The pages to read with the first touch of a record.
pub(super) struct Reading {
    /// The pages that are mapped with it.
    pub(super) demand: Range<u64>,
    /// The other pages, of its area.
    pub(super) pages: Pages,
    /// Blocks of them that are read page by page.
    pub(super) single: Blocks,
    /// That is all of it.
    pub(super) takes_area: bool,
}

impl Records {
    pub(super) const fn new() -> Records {
        Records {
            open: [Record::FREE; OPEN],
            next: 0,
            by_distance: [0; 2 * REACH as usize],
            by_region: [0; SIZES],
            by_wide_region: [0; WIDE.len()],
            is_settled: false,
            count: 0,
        }
    }

    /// As when it was new.
    pub(super) fn forget(&mut self) {
        for record in &mut self.open {
            *record = Record::FREE;
        }
        self.next = 0;
        self.by_distance.fill(0);
        self.by_region.fill(0);
        self.by_wide_region.fill(0);
        self.is_settled = false;
        self.count = 0;
    }

    /// Takes note of a touch; true if a record begins with it. `known` is the record of the
    /// area that a page is in.
    #[inline(never)]
    pub(super) fn note<'a>(
        &mut self,
        event: &Event,
        known: impl FnOnce(u64) -> Option<&'a Area>,
    ) -> bool {
        let mut is_near = false;
        for record in &mut self.open {
            if let Some(bit) = record.bit(event.page) {
                record.touched |= bit;
                is_near = true;
            }
            if event.touch == Touch::FirstUse && event.folio.end - event.folio.start > 1 {
                hide(record, event.folio.clone());
            }
        }
        let begins = !is_near && event.touch == Touch::Miss;
        if begins {
            let at = usize::from(self.next);
            self.next = ((at + 1) % OPEN) as u8;
            let first = event.page;
            let fresh = Record {
                first,
                touched: 1 << REACH,
                hidden: 0,
            };
            let old = core::mem::replace(&mut self.open[at], fresh);
            if old.first != u64::MAX {
                self.learn(&old);
                if let Some(area) = known(old.first) {
                    self.learn_wide(old.first, area);
                }
            }
            self.count = self.count.wrapping_add(1);
        }
        begins
    }

    /// Takes note of pages that are mapped with a touch of one of them.
    pub(super) fn mapped(&mut self, pages: Range<u64>) {
        if pages.end - pages.start > 1 {
            for record in &mut self.open {
                hide(record, pages.clone());
            }
        }
    }

    #[inline(never)]
    fn learn(&mut self, record: &Record) {
        let is_alone = record.touched == 1 << REACH && record.hidden == 0;
        if is_alone && self.is_settled {
            return;
        }
        let before = (self.by_distance, self.by_region);
        for (at, share) in self.by_distance.iter_mut().enumerate() {
            let bit = 1 << at;
            if record.hidden & bit & !record.touched == 0 {
                *share = moved(*share, if record.touched & bit != 0 { 255 } else { 0 });
            }
        }
        for (share, size) in self.by_region.iter_mut().zip([8, 16, 32, 64]) {
            let region = record.region(size) & (!record.hidden | record.touched);
            let touched = (region & record.touched).count_ones();
            *share = moved(*share, (touched * 255 / region.count_ones()) as u8);
        }
        self.is_settled = is_alone && before == (self.by_distance, self.by_region);
    }

    #[inline(never)]
    fn learn_wide(&mut self, first: u64, area: &Area) {
        // Pages that were mapped with a touch of another: their touches are unknown.
        let hidden = area.mapped.without(&area.touched);
        for (share, size) in self.by_wide_region.iter_mut().zip(WIDE) {
            let pages = wide(first, size);
            let touched = pages.and(&area.touched).count();
            let of = pages.without(&hidden).count();
            if of * 16 >= size {
                *share = moved(*share, (touched * 255 / of) as u8);
            }
        }
    }

    /// The pages to read with the record that has just begun, `most` at most. None if
    /// it is the page alone.
    #[inline(never)]
    pub(super) fn plan(
        &self,
        event: &Event,
        most: u64,
        takes_areas: bool,
        apart: bool,
    ) -> Option<Reading> {
        let wide = self.wide(event, most, takes_areas, apart);
        if wide.is_some() || self.is_settled {
            return wide;
        }
        let first = event.page;
        let record = Record {
            first,
            ..Record::FREE
        };
        let mut likely: Distances = 0;
        for (at, &share) in self.by_distance.iter().enumerate() {
            if share >= LIKELY {
                likely |= 1 << at;
            }
        }
        for (&share, size) in self.by_region.iter().zip([8, 16, 32, 64]) {
            if share >= LIKELY {
                likely |= record.region(size);
            }
        }
        likely |= 1 << REACH;
        if u64::from(likely.count_ones()) > most || likely.count_ones() == 1 {
            return None;
        }
        let is_likely = |page: u64| record.bit(page).is_some_and(|bit| likely & bit != 0);
        let single = self.count.is_multiple_of(SAMPLE);
        let demand = match single {
            true => first..first + 1,
            false => {
                let end = (first + 1..event.folio.end).take_while(|&page| is_likely(page));
                let start = (event.folio.start..first)
                    .rev()
                    .take_while(|&page| is_likely(page));
                start.last().unwrap_or(first)..end.last().unwrap_or(first) + 1
            }
        };
        let area = first - first % AREA;
        let mut pages = Pages::NONE;
        let near = first.saturating_sub(REACH).max(area)..(first + REACH).min(area + AREA);
        (near.start..near.end.min(event.file_pages))
            .filter(|page| is_likely(*page) && !demand.contains(page))
            .for_each(|page| pages.add(page - area));
        let single = if single { Blocks::ALL } else { Blocks::NONE };
        Some(Reading {
            demand,
            pages,
            single,
            takes_area: false,
        })
    }

    /// The largest wide region that is likely, if there is one.
    fn wide(&self, event: &Event, most: u64, takes_areas: bool, apart: bool) -> Option<Reading> {
        let mut sizes = self.by_wide_region.iter().zip(WIDE).rev();
        let is_likely = |share: u8, size| share >= LIKELY || (takes_areas && size == AREA);
        let (_, size) = sizes.find(|(share, size)| is_likely(**share, *size) && *size <= most)?;
        let area = event.page / AREA;
        let single = match apart {
            true => Blocks::ALL,
            false => samples(area),
        };
        let demand = match single.have(event.page % AREA) {
            true => event.page..event.page + 1,
            false => event.folio.clone(),
        };
        let first = area * AREA;
        let in_file = Pages::range(0..event.file_pages.saturating_sub(first).min(AREA));
        let pages = wide(event.page, size).and(&in_file);
        let demanded = Pages::range(demand.start - first..demand.end - first);
        Some(Reading {
            demand,
            pages: pages.without(&demanded),
            single,
            takes_area: size == AREA,
        })
    }
}

/// The pages of its area that are in the aligned region of so many around a page.
fn wide(page: u64, size: u64) -> Pages {
    let start = page % AREA / size * size;
    Pages::range(start..start + size)
}

fn hide(record: &mut Record, pages: Range<u64>) {
    if record.first == u64::MAX {
        return;
    }
    let start = pages.start.max(record.first.saturating_sub(REACH));
    let end = pages.end.min(record.first + REACH);
    if start < end {
        let bits = Distances::MAX >> (2 * REACH - (end - start));
        record.hidden |= bits << (start + REACH - record.first);
    }
}

/// A moving share: an eighth of the way, and all of it in the end.
pub(super) fn moved(share: u8, sample: u8) -> u8 {
    match sample >= share {
        true => share + (sample - share).div_ceil(8),
        false => share - (share - sample).div_ceil(8),
    }
}

#[cfg(test)]
mod tests {
    use super::super::areas::{Areas, mixed};
    use super::*;
    use crate::readahead::Mapped;

    fn miss(page: u64) -> Event {
        Event {
            page,
            folio: page - page % 16..page - page % 16 + 16,
            touch: Touch::Miss,
            mapped: Mapped::default(),
            file_pages: 1 << 20,
        }
    }

    #[test]
    fn a_record_is_read_with_its_first_page() {
        let mut records = Records::new();
        for number in 0..40 {
            let first = 1000 + number * 10_007;
            for page in first..first + 8 {
                let begins = records.note(&miss(page), |_| None);
                assert_eq!(begins, page == first);
            }
        }
        let event = miss(500_003);
        assert!(records.note(&event, |_| None));
        let reading = records.plan(&event, 100, false, false).expect("learned");
        let wanted = match reading.single == Blocks::ALL {
            true => (500_003..500_004, 7),
            false => (500_003..500_011, 0),
        };
        assert_eq!((reading.demand, reading.pages.count()), wanted);
        assert!(records.plan(&event, 7, false, false).is_none());
    }

    #[test]
    fn hidden_pages_are_those_near_a_record() {
        for first in [0, 1, 63, 64, 65, 1000, u64::MAX] {
            for start in (0..200).chain(900..1100) {
                for pages in [0, 1, 2, 63, 64, 128, 129, 512] {
                    let fresh = Record {
                        first,
                        ..Record::FREE
                    };
                    let bits = (start..start + pages).filter_map(|page| fresh.bit(page));
                    let mut record = fresh;
                    hide(&mut record, start..start + pages);
                    let plain = bits.fold(0, |all, bit| all | bit);
                    assert_eq!(record.hidden, plain, "{first}: {pages} from {start}");
                }
            }
        }
    }

    /// Records of pages alone, with others in between: what is left out once they teach nothing changes no answer.
    #[test]
    fn records_that_teach_nothing_are_left_out() {
        let (mut records, mut plain) = (Records::new(), Records::new());
        let mut settled = 0;
        for round in 0..20_000 {
            let drawn = |at: u64, below: u64| mixed(round << 8 | at) % below;
            let first = drawn(0, 1 << 19);
            // For some thousand rounds most are alone, then few.
            let is_alone = drawn(1, 1000) < if round / 4000 % 2 == 0 { 999 } else { 300 };
            let pages = if is_alone { 1 } else { drawn(2, 20) };
            let hidden = 1 + drawn(3, 40);
            for page in first..first + pages {
                let event = miss(page);
                let begins = records.note(&event, |_| None);
                plain.is_settled = false;
                assert_eq!(begins, plain.note(&event, |_| None));
            }
            if !is_alone {
                records.mapped(first..first + hidden);
                plain.mapped(first..first + hidden);
            }
            let event = miss(drawn(4, 1 << 19));
            plain.is_settled = false;
            let plans = [&records, &plain].map(|records| {
                let plan = records.plan(&event, drawn(5, 200), drawn(6, 9) == 0, false);
                plan.map(|plan| (plan.demand, plan.pages, plan.single))
            });
            assert_eq!(plans[0], plans[1], "round {round}");
            assert_eq!(records.by_distance, plain.by_distance);
            assert_eq!(records.by_region, plain.by_region);
            settled += u32::from(records.is_settled);
        }
        assert!((1000..19_000).contains(&settled), "{settled}");
    }

    #[test]
    fn single_pages_teach_nothing_to_be_read() {
        let mut records = Records::new();
        for number in 0..100 {
            assert!(records.note(&miss(number * 1021), |_| None));
        }
        assert!(records.plan(&miss(500_000), 100, false, false).is_none());
    }

    /// An area of which some pages were touched, each alone.
    fn area(areas: &mut Areas, number: u64, pages: Range<u64>) {
        let area = areas.touch(number, 1);
        area.touched = Pages::range(pages);
        area.mapped = area.touched;
    }

    #[test]
    fn wide_regions_are_learned_from_the_touches_of_their_area() {
        for (used, likely) in [(256, Some(255)), (200, Some(127)), (100, None)] {
            let mut records = Records::new();
            let mut areas = Areas::new(1 << 20);
            for number in 0..60 {
                area(&mut areas, number * 3, 0..used);
                let first = miss(number * 3 * AREA + 17);
                assert!(records.note(&first, |page| areas.find(page / AREA)));
            }
            let event = miss(999 * AREA + 300);
            let reading = records.plan(&event, 400, false, false);
            let pages = |reading: Reading| {
                let demand = reading.demand.end - reading.demand.start;
                assert!(reading.pages.without(&Pages::range(256..512)).is_empty());
                reading.pages.count() + demand - 1
            };
            assert_eq!(reading.map(pages), likely, "{used} of each 256");
            assert!(
                records.plan(&event, 100, false, false).is_none(),
                "no room for it"
            );
        }
    }

    #[test]
    fn aligned_regions_are_learned_from_any_page_of_them() {
        let mut records = Records::new();
        for number in 0..60 {
            let start = number * 1600;
            for at in 0..32 {
                records.note(&miss(start + (at * 13 + number * 7) % 32), |_| None);
            }
        }
        let event = miss(500_000 / 32 * 32 + 20);
        let reading = records.plan(&event, 100, false, false).expect("learned");
        let all = reading.pages.count() + (reading.demand.end - reading.demand.start);
        assert_eq!(all, 32);
    }
}
