//! Which pages of a file were touched of late, by area, in any order.
//!
//! A table of the areas that were touched last: a set has sixteen, of which the one that was quiet
//! for longest makes room. Evictions are not reported; a miss on a page that was mapped
//! shows one: its block is forgotten then, and with the third such block its area.

use super::gap_period::GapPeriod;
use core::ops::Range;

/// Pages of an area: 2 MiB.
pub(super) const AREA: u64 = 512;
/// Pages of a block, which is a folio if it is read whole.
const BLOCK: u64 = super::FOLIO;
const _: () = assert!(BLOCK == 16 && AREA / BLOCK == 32);
/// Areas of a set.
const WAYS: usize = 16;
/// Areas that are remembered of a large file: 512 MiB of it.
const MOST: usize = 256;
/// The number of no area.
const NONE: u64 = u64::MAX;

/// Some pages of an area, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Pages([u64; 8]);

impl Pages {
    pub(super) const NONE: Pages = Pages([0; 8]);

    /// The pages of a range of the area, from 0 to [`AREA`].
    pub(super) fn range(range: Range<u64>) -> Pages {
        let mut pages = Pages::NONE;
        for (index, word) in (0..).zip(&mut pages.0) {
            let from = range.start.clamp(index * 64, index * 64 + 64) - index * 64;
            let to = range.end.clamp(index * 64, index * 64 + 64) - index * 64;
            if from < to {
                *word = (u64::MAX >> (64 - (to - from))) << from;
            }
        }
        pages
    }

    /// Calls `each` with the words of a range, and which of their bits are in it.
    fn words(range: &Range<u64>, mut each: impl FnMut(usize, u64)) {
        let mut from = range.start;
        while from < range.end {
            let to = (from - from % 64 + 64).min(range.end);
            each(
                (from / 64) as usize,
                u64::MAX >> (64 - (to - from)) << (from % 64),
            );
            from = to;
        }
    }

    pub(super) fn count(&self) -> u64 {
        (self.0.iter())
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// How many are in blocks of which all are there.
    pub(super) fn of_whole_blocks(&self) -> u64 {
        let blocks =
            |word: u64| (0..64 / BLOCK).filter(move |at| word >> (at * BLOCK) & 0xffff == 0xffff);
        let count: usize = self.0.iter().map(|&word| blocks(word).count()).sum();
        count as u64 * BLOCK
    }

    /// From the first to the last.
    pub(super) fn span(&self) -> Range<u64> {
        let (mut start, mut end) = (AREA, 0);
        for (at, word) in (0..).zip(self.0) {
            if word != 0 {
                start = start.min(at * 64 + u64::from(word.trailing_zeros()));
                end = at * 64 + 64 - u64::from(word.leading_zeros());
            }
        }
        start.min(end)..end
    }

    /// How many are followed by another.
    pub(super) fn pairs(&self) -> u64 {
        let mut pairs = 0;
        for (at, word) in self.0.iter().enumerate() {
            let next = self.0.get(at + 1).copied().unwrap_or(0);
            pairs += (word & (word >> 1 | next << 63)).count_ones();
        }
        u64::from(pairs)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; 8]
    }

    pub(super) fn has(&self, page: u64) -> bool {
        self.0[(page / 64) as usize] >> (page % 64) & 1 != 0
    }

    pub(super) fn add(&mut self, page: u64) {
        self.0[(page / 64) as usize] |= 1 << (page % 64);
    }

    /// How many pages are there, or `by` pages further, and not both; and of how many.
    pub(super) fn differ_from_moved(&self, by: u64) -> (u64, u64) {
        let (words, bits) = ((by / 64) as usize, by % 64);
        let word = |at: usize| self.0.get(at).copied().unwrap_or(0);
        let (mut differ, mut of) = (0, 0);
        Pages::words(&(0..AREA - by), |at, both| {
            let low = word(at + words) >> bits;
            let moved = match bits {
                0 => low,
                _ => low | word(at + words + 1) << (64 - bits),
            };
            differ += ((self.0[at] ^ moved) & both).count_ones();
            of += (self.0[at] & both).count_ones();
        });
        (u64::from(differ), u64::from(of))
    }

    pub(super) fn and(&self, other: &Pages) -> Pages {
        Pages(core::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    pub(super) fn or(&self, other: &Pages) -> Pages {
        Pages(core::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    pub(super) fn without(&self, other: &Pages) -> Pages {
        Pages(core::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// Takes out the pages from `end` on.
    pub(super) fn truncate(&mut self, end: u64) {
        for (index, word) in (0..).zip(&mut self.0) {
            let kept = end.clamp(index * 64, index * 64 + 64) - index * 64;
            *word &= u64::MAX.checked_shr(64 - kept as u32).unwrap_or(0);
        }
    }

    /// The first run of them at or after `from`.
    pub(super) fn run_from(&self, from: u64) -> Option<Range<u64>> {
        let start = (from..AREA).find(|&page| self.has(page))?;
        let end = (start..AREA).find(|&page| !self.has(page));
        Some(start..end.unwrap_or(AREA))
    }

    /// At most `most` of them: those from `from` on first, then those in front of it.
    pub(super) fn first_from(&self, from: u64, most: u64) -> Pages {
        if self.count() <= most {
            return *self;
        }
        let mut kept = Pages::NONE;
        let mut left = most;
        for page in (from..AREA).chain(0..from) {
            if left > 0 && self.has(page) {
                kept.add(page);
                left -= 1;
            }
        }
        kept
    }
}

/// The record of an area.
#[derive(Clone, Copy)]
pub(super) struct Area {
    number: u64,
    /// Clock of the last touch, and of the first.
    stamp: u32,
    began: u32,
    /// Pages whose touches were seen.
    pub(super) seen: Pages,
    /// Those, and pages that are as good as touched.
    pub(super) touched: Pages,
    /// Pages that were mapped: those, and pages that were mapped with them.
    pub(super) mapped: Pages,
    /// Pages read ahead because their area is dense, and not mapped yet.
    pub(super) ahead: Pages,
    /// Pages read ahead for another reason, and not mapped yet.
    pub(super) read: Pages,
    /// Pages of the file that were mapped before its first was, wrapping.
    pub(super) mapped_before: u32,
    /// It was used up.
    pub(super) is_over: bool,
    /// It began with a touch out of the blue.
    pub(super) is_record: bool,
    /// It was read as a whole for its first touch.
    pub(super) is_taken: bool,
    /// Blocks that were found evicted.
    pub(super) lost: u8,
    /// Regular gaps, if it has any.
    pub(super) gap_period: Option<GapPeriod>,
    /// Pages that may be touched: all, but for the gaps.
    pub(super) expected: Pages,
}

const _: () = assert!(size_of::<Area>() <= 512);

impl Area {
    const FREE: Area = Area {
        number: NONE,
        stamp: 0,
        began: 0,
        seen: Pages::NONE,
        touched: Pages::NONE,
        mapped: Pages::NONE,
        ahead: Pages::NONE,
        read: Pages::NONE,
        mapped_before: 0,
        is_over: false,
        is_record: false,
        is_taken: false,
        lost: 0,
        gap_period: None,
        expected: Pages([u64::MAX; 8]),
    };

    /// Its first page, in the file.
    pub(super) fn first(&self) -> u64 {
        self.number * AREA
    }

    /// If it began out of the blue: how much of it was touched, of 255. Once.
    pub(super) fn end_record(&mut self) -> Option<u8> {
        // Pages that were mapped with a touch of another: their touches are unknown.
        let of = AREA - self.mapped.without(&self.touched).count();
        let is_known = core::mem::take(&mut self.is_record) && of * 16 >= AREA;
        is_known.then(|| (self.touched.count() * 255 / of) as u8)
    }

    /// True if seven of eight pages that may be touched are mapped.
    pub(super) fn is_used_up(&self) -> bool {
        let expected = self.expected.count();
        self.expected.and(&self.mapped).count() * 8 >= expected * 7
    }

    /// Forgets all touches.
    pub(super) fn forget(&mut self) {
        let (number, stamp) = (self.number, self.stamp);
        *self = Area {
            number,
            stamp,
            began: stamp,
            ..Area::FREE
        };
    }

    /// How many pages of a range may be touched.
    pub(super) fn expected_in(&self, range: &Range<u64>) -> u64 {
        let mut count = 0;
        Pages::words(range, |at, bits| {
            count += (self.expected.0[at] & bits).count_ones()
        });
        u64::from(count)
    }

    /// How many of those were.
    pub(super) fn touched_in(&self, range: &Range<u64>) -> u64 {
        let mut count = 0;
        Pages::words(range, |at, bits| {
            count += (self.expected.0[at] & self.touched.0[at] & bits).count_ones();
        });
        u64::from(count)
    }

    /// How many of those are read ahead.
    pub(super) fn ahead_in(&self, range: &Range<u64>) -> u64 {
        let mut count = 0;
        Pages::words(range, |at, bits| {
            count += (self.expected.0[at] & self.ahead.0[at] & bits).count_ones();
        });
        u64::from(count)
    }

    /// True if five pages of some aligned eight are touched or read ahead; one that is both counts twice. Without gaps, and in the
    /// file as a whole, no region of an area is dense, nor nearly full, where this is false.
    pub(super) fn may_be_dense(&self) -> bool {
        // The bits of each byte, counted in that byte: sixteen at most. With 123 more, its highest bit is set from five on.
        let counts = |word: u64| {
            let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
            let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
            (fours + (fours >> 4)) & 0x0F0F_0F0F_0F0F_0F0F
        };
        (self.touched.0.iter().zip(&self.ahead.0)).any(|(&touched, &ahead)| {
            let counts = counts(touched) + counts(ahead);
            (counts + 0x7B7B_7B7B_7B7B_7B7B) & 0x8080_8080_8080_8080 != 0
        })
    }

    /// How many of those are neither mapped nor read ahead.
    pub(super) fn absent_in(&self, range: &Range<u64>) -> u64 {
        let mut count = 0;
        Pages::words(range, |at, bits| {
            let cached = self.mapped.0[at] | self.ahead.0[at] | self.read.0[at];
            count += (self.expected.0[at] & !cached & bits).count_ones();
        });
        u64::from(count)
    }

    /// Those.
    pub(super) fn absent(&self, range: &Range<u64>) -> Pages {
        let mut absent = Pages::NONE;
        Pages::words(range, |at, bits| {
            let cached = self.mapped.0[at] | self.ahead.0[at] | self.read.0[at];
            absent.0[at] = self.expected.0[at] & !cached & bits;
        });
        absent
    }

    /// Some pages are not mapped.
    pub(super) fn clear(&mut self, pages: &Pages) {
        self.mapped = self.mapped.without(pages);
        self.touched = self.touched.without(pages);
        self.seen = self.seen.without(pages);
    }

    /// From now on pages are expected as elsewhere.
    pub(super) fn expect(&mut self, gap_period: Option<GapPeriod>) {
        self.gap_period = gap_period;
        self.expected = match gap_period {
            Some(gap_period) => gap_period.pages(self.number),
            None => Area::FREE.expected,
        };
    }

    /// Expects all pages where too many were touched that are in gaps.
    #[inline(never)]
    pub(super) fn expect_no_gaps_if_touched(&mut self) {
        let strange = self.touched.without(&self.expected).count();
        if strange > 2 + self.touched.count() / 8 {
            self.expect(None);
        }
    }

    /// Touches of the file since the first one in the area.
    pub(super) fn life(&self, clock: u32) -> u64 {
        u64::from(clock.wrapping_sub(self.began))
    }

    /// Touches of the file since the last one in the area.
    pub(super) fn age(&self, clock: u32) -> u32 {
        clock.wrapping_sub(self.stamp)
    }
}

/// The areas that were touched last. Protected by the lock of the page cache.
pub(super) struct Areas {
    /// The number of each, or [`NONE`], and the clock of its last touch: apart, as each touch goes through those of a set.
    numbers: Box<[u64]>,
    stamps: Box<[u32]>,
    all: Box<[Area]>,
    /// The place that was used last. A touch asks for its area about ten times.
    last: usize,
}

impl Areas {
    /// A table for a file of `file_pages` pages.
    pub(super) fn new(file_pages: u64) -> Areas {
        let areas = file_pages.div_ceil(AREA).clamp(1, MOST as u64) as usize;
        let areas = match areas <= WAYS {
            true => areas,
            false => areas.next_power_of_two(),
        };
        Areas {
            numbers: vec![NONE; areas].into_boxed_slice(),
            stamps: vec![0; areas].into_boxed_slice(),
            all: vec![Area::FREE; areas].into_boxed_slice(),
            last: 0,
        }
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets all of them.
    pub(super) fn forget(&mut self) {
        self.numbers.fill(NONE);
        self.all.fill(Area::FREE);
    }

    /// Those that are remembered.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Area> {
        self.all.iter().filter(|area| area.number != NONE)
    }

    /// Pages of all areas that are read ahead.
    #[cfg(test)]
    pub(super) fn ahead(&self) -> u64 {
        self.all.iter().map(|area| area.ahead.count()).sum()
    }

    fn set(&self, number: u64) -> Range<usize> {
        if self.all.len() <= WAYS {
            return 0..self.all.len();
        }
        // At any distance between areas, few of a reader's are in one set.
        let mixed = mixed(number) as usize;
        let set = mixed % (self.all.len() / WAYS) * WAYS;
        set..set + WAYS
    }

    fn place(&self, number: u64) -> Option<usize> {
        if self.numbers[self.last] == number && number != NONE {
            return Some(self.last);
        }
        let set = self.set(number);
        let at = self.numbers[set.clone()]
            .iter()
            .position(|&other| other == number)?;
        (number != NONE).then_some(set.start + at)
    }

    /// The place of the area of its set that was quiet for longest.
    fn oldest(&self, number: u64, clock: u32) -> usize {
        let age = |&at: &usize| match self.numbers[at] {
            NONE => u32::MAX,
            _ => clock.wrapping_sub(self.stamps[at]),
        };
        self.set(number).max_by_key(age).expect("a set has areas")
    }

    /// The record of an area.
    pub(super) fn find(&self, number: u64) -> Option<&Area> {
        self.place(number).map(|at| &self.all[at])
    }

    pub(super) fn find_mut(&mut self, number: u64) -> Option<&mut Area> {
        self.last = self.place(number)?;
        Some(&mut self.all[self.last])
    }

    /// Where room is to be made for an area, and which one is there. None if it has its place.
    pub(super) fn room(&self, number: u64, clock: u32) -> Option<(usize, Option<u64>)> {
        if self.place(number).is_some() {
            return None;
        }
        let at = self.oldest(number, clock);
        Some((at, Some(self.numbers[at]).filter(|&gone| gone != NONE)))
    }

    /// An area that is not there begins, in this place.
    pub(super) fn begin(&mut self, at: usize, number: u64, clock: u32) {
        self.numbers[at] = number;
        self.stamps[at] = clock;
        self.all[at] = Area {
            number,
            stamp: clock,
            began: clock,
            ..Area::FREE
        };
        self.last = at;
    }

    /// The area, touched now. It takes the place of the one that was quiet for longest.
    pub(super) fn touch(&mut self, number: u64, clock: u32) -> &mut Area {
        match self.place(number) {
            Some(at) => self.last = at,
            None => self.begin(self.oldest(number, clock), number, clock),
        }
        self.stamps[self.last] = clock;
        let area = &mut self.all[self.last];
        area.stamp = clock;
        area
    }
}

/// A number drawn by another, of which each bit depends on all of that: a product alone has
/// periods of its own. (The end of MurmurHash3, by Austin Appleby.)
pub(super) fn mixed(mut word: u64) -> u64 {
    word = (word ^ word >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    word = (word ^ word >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    word ^ word >> 33
}

/// Some blocks of an area, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks(u32);

impl Blocks {
    pub(super) const NONE: Blocks = Blocks(0);
    pub(super) const ALL: Blocks = Blocks(u32::MAX);

    pub(super) fn have(self, page: u64) -> bool {
        self.0 >> (page / BLOCK) & 1 != 0
    }

    pub(super) fn pages(self) -> Pages {
        let mut pages = Pages::NONE;
        for (at, word) in (0..).zip(&mut pages.0) {
            for block in 0..64 / BLOCK {
                if self.have(at * 64 + block * BLOCK) {
                    *word |= 0xffff << (block * BLOCK);
                }
            }
        }
        pages
    }
}

/// The same where nothing else was seen for long: of one area in four.
pub(super) fn few_samples(number: u64) -> Blocks {
    match mixed(number).is_multiple_of(4) {
        true => samples(number),
        false => Blocks::NONE,
    }
}

/// The blocks of an area that are read page by page, so that the touches in them are seen: two
/// of thirty-two, in other places in each area.
pub(super) fn samples(number: u64) -> Blocks {
    let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    Blocks(1 << (hash % 16) | 1 << (16 + (hash >> 8) % 16))
}
