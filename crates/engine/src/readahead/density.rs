//! Read-ahead by density: which pages of a region are touched, not in which order.
//!
//! A *region* is aligned, of 8 to 512 pages; each is a half of the next larger one. A touch
//! that no stream expected asks for the largest region around it that is *dense*:
//!
//! - more than half of it is touched (a quarter would find shuffles sooner, and take strides for them); or
//! - three quarters of a region of its size beside it are, and some touches were in this one.
//!
//! Where an area has regular gaps (gap_period.rs), all of this is about the pages between them.
//!
//! Its missing pages are read. Where half of a dense region is used, and the region behind
//! it is dense, the one in front follows (the *frontier*): so the reader of any order within
//! regions, and of regions in any direction, finds its pages read.
//!
//! **The limit of its cost.** Of pages that were read for this reason and are not used yet
//! there are at most 512, or a part of the pages that were read ahead and used before: a half in regions of a
//! size that has proven itself, a quarter in others, a sixteenth where there are gaps; a page
//! that was read in vain undoes eight that were used. Each reading
//! is a guess that is judged later by the touches in it; regions of a size whose guesses come out
//! below four fifths are not read any more, only guessed, until guesses are right again; those
//! around a reader and those in front of it are trusted apart.
//! So that touches are seen, regions of a size that has not proven itself are read page by
//! page, and afterwards two blocks of an area.
//!
//! The tree of regions with half as the threshold is that of NVIDIA's driver for unified
//! memory (Ganguly et al., ISCA 2019, <https://doi.org/10.1145/3307650.3322224>); regions
//! beside, guesses and the limit of unused pages are ours.

mod choose;
mod confined;
mod front;
mod missed;
mod region;
mod whole_areas;

use super::areas::{AREA, Area, Areas, Blocks, Pages, few_samples, samples};
use super::gap_period::GapPeriod;
use super::guess::Guesses;
use super::reads::AreaPages;
use super::records::moved;
use super::unused_pages::UnusedPages;
use super::{Ahead, Event, FOLIO, Planned, Touch};
use confined::{Apart, Confined, EARLY};
use core::ops::Range;
use missed::Missed;
use region::Region;
use whole_areas::Credit;

/// Pages of the smallest region.
const LEAST: u64 = 8;
/// Sizes of regions: 8, 16, .. 512 pages.
pub(super) const LEVELS: usize = 7;
const _: () = assert!(LEAST << (LEVELS - 1) == AREA);

/// Touched pages of an area at which gaps are looked for again, if it has none yet.
const LOOKS: [u64; 4] = [8, 24, 48, 96];
/// Blocks of an area that were evicted, until it is taken for evicted as a whole.
const LOST: u8 = 2;
/// Unused pages that a confined reader may have for each that it touched: at a quarter all of the rest may be.
const SCATTERED: u64 = 3;
/// Touches without a reading, where there was no room for all of the last one.
const PAUSE: u8 = 16;

/// Protected by the lock of the page cache.
pub(super) struct Density {
    areas: Areas,
    guesses: Guesses,
    /// The pages that areas have ahead.
    unused: UnusedPages,
    /// Touches until the next reading, after one for which there was no room.
    pause: u8,
    confined: Confined,
    missed: Missed,
    /// Pages that were mapped with another and evicted before their touch.
    early: u8,
    /// Pages mapped so far, wrapping, and how many that were during the life of the area that was last used up.
    mapped: u32,
    life: u32,
    apart: Apart,
    /// How much of an area that began out of the blue was touched in the end, of 255: a moving
    /// share.
    of_area: u8,
    /// For areas that are read as a whole for their first touch.
    credit: Credit,
}

/// The room for reads now.
pub(super) struct Room {
    /// Pages, of all that may be outstanding.
    pub(super) pages: u64,
    /// The same for pages that are all but certain.
    pub(super) sure: u64,
    /// Pages that the maps of the file may take.
    pub(super) memory: u64,
    /// Pages in front of a reader.
    pub(super) window: u64,
    pub(super) clock: u32,
}

impl Density {
    pub(super) fn new(file_pages: u64) -> Density {
        let areas = Areas::new(file_pages);
        Density {
            guesses: Guesses::new(areas.len()),
            areas,
            unused: UnusedPages::NONE,
            pause: 0,
            confined: Confined::NONE,
            missed: Missed::NONE,
            early: 0,
            mapped: 0,
            life: u32::MAX,
            apart: Apart::default(),
            of_area: 0,
            credit: Credit::ALL,
        }
    }

    /// Forgets all touches, and the results of guesses about them.
    pub(super) fn forget(&mut self) {
        self.areas.forget();
        self.guesses.forget_all();
        self.unused.take_back(u64::MAX);
        self.missed = Missed::NONE;
        self.pause = 0;
    }

    pub(super) fn areas(&self) -> &Areas {
        &self.areas
    }

    /// The region of a size around a page of the file.
    fn region(&self, page: u64, level: usize, file_pages: u64) -> Region {
        let size = LEAST << level;
        let start = page - page % size;
        let len = file_pages.saturating_sub(start).min(size);
        let mut region = Region {
            start,
            len: len as u16,
            count: len as u16,
            level: level as u8,
            has_gaps: false,
            is_front: false,
            is_confined: false,
        };
        if let Some(area) = self.areas.find(start / AREA)
            && area.gap_period.is_some()
        {
            region.count = area.expected_in(&region.range()) as u16;
            region.has_gaps = true;
        }
        region
    }

    /// The region of this size some places further. None if the file has none there.
    fn beside(&self, region: &Region, places: i64, file_pages: u64) -> Option<Region> {
        let start = region.beside(places).filter(|&start| start < file_pages)?;
        Some(self.region(start, usize::from(region.level), file_pages))
    }

    /// Makes room for an area, and judges the guesses about the one that goes. Its pages are
    /// expected to be touched as those of the areas beside it were.
    #[inline(never)]
    fn enter(&mut self, number: u64, clock: u32) {
        let Some((at, gone)) = self.areas.room(number, clock) else {
            return;
        };
        if let Some(gone) = gone {
            self.settle(gone);
        }
        self.areas.begin(at, number, clock);
        self.look_for_gaps(number, [number.wrapping_sub(1), number + 1]);
    }

    /// Makes room for an area that a reader in another one is expected in.
    #[inline(never)]
    fn enter_front(&mut self, number: u64, reader: u64, clock: u32) {
        let is_new = self.areas.find(number).is_none();
        self.enter(number, clock);
        if is_new && (self.areas.find(number)).is_some_and(|area| area.gap_period.is_none()) {
            self.look_for_gaps(number, [reader]);
        }
    }

    /// Expects in an area the regular gaps of others.
    #[inline(never)]
    fn look_for_gaps<const N: usize>(&mut self, number: u64, others: [u64; N]) {
        for other in others {
            if let Some(gap_period) = self.gaps_of(other) {
                return self.expect_gaps(number, &gap_period);
            }
        }
    }

    /// The regular gaps of an area.
    #[inline(never)]
    fn gaps_of(&self, number: u64) -> Option<GapPeriod> {
        let area = self.areas.find(number)?;
        if area.gap_period.is_some() {
            return area.gap_period;
        }
        // Blocks that are still ahead as a whole may be touched yet: they are no gaps.
        if area.ahead.of_whole_blocks() * 8 > area.touched.count() {
            return None;
        }
        GapPeriod::of(number, &area.touched)
    }

    #[inline(never)]
    fn expect_gaps(&mut self, number: u64, gap_period: &GapPeriod) {
        if let Some(area) = self.areas.find_mut(number) {
            area.expect(Some(*gap_period));
            // Read before the gaps were known.
            let lost = area.ahead.without(&area.expected);
            area.ahead = area.ahead.without(&lost);
            self.unused.lose(lost.count());
        }
    }

    /// The touch is the first of an area, and none was expected there.
    pub(super) fn begins(&mut self, page: u64) {
        if let Some(area) = self.areas.find_mut(page / AREA)
            && area.touched.count() == 1
        {
            area.is_record = true;
        }
    }

    /// True if memory does not keep pages that are mapped with another until they are touched.
    pub(super) fn reads_apart(&self, clock: u32) -> bool {
        self.apart.is_on(clock)
    }

    /// True if areas are used up while an eighth of memory is mapped: pages mapped early are there when they are touched.
    pub(super) fn is_quick(&self, memory: u64) -> bool {
        u64::from(self.life) * 8 <= memory
    }

    /// The record of the area that a page is in.
    pub(super) fn area_of(&self, page: u64) -> Option<&Area> {
        self.areas.find(page / AREA)
    }

    /// True if a stride is all that was touched beside a page.
    pub(super) fn is_stride(&self, page: u64) -> bool {
        let gap_period = self
            .areas
            .find(page / AREA)
            .and_then(|area| area.gap_period);
        gap_period.is_some_and(|gap_period| gap_period.is_stride())
    }

    /// Takes note of a touch, before its reads are decided.
    pub(super) fn note(&mut self, event: &Event, memory: u64, clock: u32) {
        let number = event.page / AREA;
        self.apart.end_if_over(clock);
        // Functions with few variables: the search for gaps is deep in the handler's stack.
        self.enter(number, clock);
        self.note_in_area(event, memory, clock);
        self.note_gaps(number);
        match event.touch {
            Touch::FirstUse => self.mapped(event.folio.clone(), clock),
            Touch::Miss => self.mapped_in_area(event.page..event.page + 1, clock),
        }
        self.score_finished(number, clock);
    }

    #[inline(never)]
    fn note_in_area(&mut self, event: &Event, memory: u64, clock: u32) {
        let number = event.page / AREA;
        let bit = event.page % AREA;
        let is_again = event.touch == Touch::Miss && self.missed.note(event.page);
        let area = self.areas.touch(number, clock);
        if event.touch == Touch::Miss {
            let block = Pages::range(bit - bit % FOLIO..bit - bit % FOLIO + FOLIO);
            if area.read.has(bit) {
                // Dropped before it was touched, as those below.
                area.read = area.read.without(&block);
            }
        }
        if event.touch == Touch::Miss && area.mapped.has(bit) && !is_again {
            if !area.seen.has(bit) {
                self.early += 1;
                if self.early == EARLY {
                    self.early = 0;
                    self.apart.start(memory, clock);
                }
            }
            // It was evicted since, and so was its block. Where others are too, this is
            // another pass.
            area.lost += 1;
            if area.lost > LOST {
                self.settle(number);
                self.areas.touch(number, clock).forget();
            } else {
                area.clear(&Pages::range(bit - bit % FOLIO..bit - bit % FOLIO + FOLIO));
            }
        } else if event.touch == Touch::Miss && area.ahead.has(bit) {
            // Dropped before it was touched, and so were its neighbours.
            let block = Pages::range(bit - bit % FOLIO..bit - bit % FOLIO + FOLIO);
            let lost = area.ahead.and(&block);
            area.ahead = area.ahead.without(&block);
            self.unused.lose(lost.count());
        }
        let area = self.areas.touch(number, clock);
        area.touched.add(bit);
        area.seen.add(bit);
        let count = area.touched.count();
        let is_taken = area.is_taken;
        if count * 8 >= AREA * 7
            && let Some(share) = area.end_record()
        {
            self.of_area = moved(self.of_area, share);
            if area.life(clock) * 2 > memory {
                self.apart.start(2 * memory, clock);
            }
            self.credit.bring_back(true);
        }
        if is_taken {
            self.credit.bring_back(false);
        }
    }

    /// Ceases to expect gaps where pages in them are touched, and looks for gaps where none are known.
    #[inline(never)]
    fn note_gaps(&mut self, number: u64) {
        let Some(area) = self.areas.find_mut(number) else {
            return;
        };
        if area.gap_period.is_some() {
            area.expect_no_gaps_if_touched();
        } else if LOOKS.contains(&area.touched.count()) {
            // The area beside it may not have been complete when this one was entered.
            self.look_for_gaps(number, [number.wrapping_sub(1), number + 1]);
        }
    }

    /// Takes note of pages that are as good as touched: those beside such a page always were.
    pub(super) fn took(&mut self, pages: Range<u64>, clock: u32) {
        let area = self.areas.touch(pages.start / AREA, clock);
        let first = pages.start % AREA;
        let pages = Pages::range(first..first + (pages.end - pages.start));
        area.touched = area.touched.or(&pages);
    }

    /// Pages of an area were not mapped after all.
    pub(super) fn unread(&mut self, pages: Range<u64>) {
        let (number, first) = (pages.start / AREA, pages.start % AREA);
        if let Some(area) = self.areas.find_mut(number) {
            area.clear(&Pages::range(first..first + (pages.end - pages.start)));
        }
    }

    /// Takes note of pages that are mapped with a touch.
    pub(super) fn mapped(&mut self, pages: Range<u64>, clock: u32) {
        let mut start = pages.start;
        while start < pages.end {
            let end = (start - start % AREA + AREA).min(pages.end);
            self.enter(start / AREA, clock);
            self.mapped_in_area(start..end, clock);
            start = end;
        }
    }

    /// The same of pages of one area.
    #[inline(never)]
    fn mapped_in_area(&mut self, pages: Range<u64>, clock: u32) {
        let area = self.areas.touch(pages.start / AREA, clock);
        let first = pages.start % AREA;
        let pages = Pages::range(first..first + (pages.end - pages.start));
        let were_ahead = area.ahead.and(&pages);
        // A folio of several pages is read where that was right so far: all of it counts.
        area.touched = area.touched.or(&were_ahead);
        let used = were_ahead.count();
        if area.mapped.is_empty() {
            (area.mapped_before, area.is_over) = (self.mapped, false);
        }
        area.ahead = area.ahead.without(&pages);
        area.mapped = area.mapped.or(&pages);
        area.read = area.read.without(&pages);
        if area.is_used_up() && !core::mem::replace(&mut area.is_over, true) {
            self.life = self.mapped.wrapping_sub(area.mapped_before);
        }
        self.mapped = self.mapped.wrapping_add(pages.count() as u32);
        self.unused.use_up(used);
    }

    /// The pages to read for a touch that no stream expected. None if it is not in a dense
    /// region.
    pub(super) fn plan(&mut self, event: &Event, room: &Room) -> Option<Planned> {
        let region = self.choose(event, room)?;
        let is_sure = self.guesses.is_sure(region.rank());
        let seen = self.samples(&region);
        let is_seen = !is_sure
            || region.is_confined
            || self.reads_apart(room.clock)
            || room.pages < FOLIO
            || seen.have(event.page % AREA);
        let demand = match event.touch == Touch::Miss && !is_seen {
            true => self.demand(event, &region),
            false => event.page..event.page + 1,
        };
        let extra = demand.end - demand.start - 1;
        if extra > 0 {
            self.took(demand.clone(), room.clock);
        }
        let share = match (region.has_gaps, is_sure) {
            (true, _) => 16,
            (false, true) => 2,
            (false, false) => 4,
        };
        let (pages, remaining) = match region.is_confined {
            true => (
                room.sure,
                self.unused.remaining_of(SCATTERED * self.confined.touched),
            ),
            false if is_sure => (room.sure, self.unused.remaining(share)),
            false => (room.pages, self.unused.remaining(share)),
        };
        let most = (pages.saturating_sub(extra)).min(remaining);
        let ahead = self.ahead(event, &region, &demand, most.min(room.window), room.clock);
        Some(Planned { demand, ahead })
    }

    /// The pages to read of a region beside those that the touch maps, at most so many.
    #[inline(never)]
    fn ahead(
        &mut self,
        event: &Event,
        region: &Region,
        demand: &Range<u64>,
        most: u64,
        clock: u32,
    ) -> Ahead {
        let first = region.area() * AREA;
        let is_here = event.page / AREA == region.area();
        let is_sure = self.guesses.is_sure(region.rank());
        self.pause = self.pause.saturating_sub(1);
        let area = self.areas.touch(region.area(), clock);
        let mut pages = area.absent(&region.range());
        if is_here && event.touch == Touch::Miss {
            pages = pages.without(&Pages::range(demand.start - first..demand.end - first));
        }
        let absent = pages.count();
        let from = if is_here { event.page } else { region.start };
        pages = pages.first_from(from % AREA, most);
        // Not page by page, where there is little room.
        let count = pages.count();
        if count < absent.min(FOLIO) || count == 0 || self.pause > 0 {
            return Ahead::None;
        }
        area.ahead = area.ahead.or(&pages);
        self.unused.add(count);
        let single = match is_sure && !region.is_confined && !self.reads_apart(clock) {
            true => self.samples(region),
            false => Blocks::ALL,
        };
        let visible = pages.and(&single.pages());
        let (at, _) = self.guess(region, clock);
        self.guesses.add(at, &pages, &visible, clock);
        Ahead::Area(AreaPages {
            start: first,
            pages,
            single,
            is_sure: is_sure || region.is_confined,
        })
    }

    /// Takes note of pages of an area that are read ahead for another reason: they are not
    /// absent.
    pub(super) fn reads(&mut self, first: u64, pages: &Pages, clock: u32) {
        let area = self.areas.touch(first / AREA, clock);
        area.read = area.read.or(&pages.without(&area.ahead));
    }

    /// A reading was asked for in order, and there was no room from this page on: those
    /// pages are absent still, and do not count as unused.
    pub(super) fn refused(&mut self, reading: &AreaPages, page: u64) {
        self.pause = PAUSE;
        self.absent(reading, page);
    }

    /// The same, of a reading that was not tried: others go on.
    pub(super) fn absent(&mut self, reading: &AreaPages, page: u64) {
        let number = reading.start / AREA;
        let pages = reading.pages.and(&Pages::range(page % AREA..AREA));
        if page / AREA == number
            && let Some(area) = self.areas.find_mut(number)
        {
            let were_ahead = area.ahead.and(&pages);
            area.ahead = area.ahead.without(&pages);
            area.read = area.read.without(&pages);
            self.unused.take_back(were_ahead.count());
            self.guesses.forget(number, &pages);
        }
    }

    /// Pages that were read ahead, as far as is known, and not used yet.
    #[cfg(test)]
    pub(super) fn unused(&self) -> u64 {
        self.unused.count()
    }

    /// True if a block may be read ahead anywhere.
    pub(super) fn may_read_ahead(&self) -> bool {
        self.unused.remaining(16) >= FOLIO && self.pause == 0
    }

    /// The blocks of a region that are read page by page.
    fn samples(&self, region: &Region) -> Blocks {
        match self.guesses.is_proven(region.rank()) {
            true => few_samples(region.area()),
            false => samples(region.area()),
        }
    }

    /// The pages around a missed one that are read and mapped with it.
    fn demand(&self, event: &Event, region: &Region) -> Range<u64> {
        let first = region.area() * AREA;
        let Some(area) = self.areas.find(region.area()) else {
            return event.page..event.page + 1;
        };
        let range = region.range();
        let is_in = |page: &u64| {
            let at = page.wrapping_sub(first);
            range.contains(&at) && area.expected.has(at)
        };
        let end = (event.page + 1..event.folio.end).take_while(is_in).last();
        let start = (event.folio.start..event.page)
            .rev()
            .take_while(is_in)
            .last();
        start.unwrap_or(event.page)..end.unwrap_or(event.page) + 1
    }

    /// Guesses that all of a region will be touched, and reads nothing.
    #[inline(never)]
    fn only_guess(&mut self, region: &Region, clock: u32) {
        let (at, is_new) = self.guess(region, clock);
        if let (true, Some(area)) = (is_new, self.areas.find(region.area())) {
            let absent = area.absent(&region.range());
            self.guesses.add(at, &Pages::NONE, &absent, clock);
        }
    }

    /// The place of a guess about a region, and whether it is new there.
    fn guess(&mut self, region: &Region, clock: u32) -> (usize, bool) {
        let (area, rank) = (region.area(), region.rank());
        let (at, is_new) = self.guesses.place(area, rank);
        if is_new {
            self.guesses.drop(at);
            self.guesses.begin(at, area, rank, clock);
        }
        (at, is_new)
    }

    /// Scores the guesses that came true in an area, and any other that had its time.
    #[inline(never)]
    fn score_finished(&mut self, number: u64, clock: u32) {
        let other = self.guesses.next_to_look_at();
        for at in self.guesses.about(number).chain([other]) {
            if self.guesses.is_over(at, clock, &self.areas) {
                self.score(at);
            }
        }
    }

    /// An area will be forgotten: its guesses are scored, and the pages still ahead in it were
    /// read in vain, by guesses that have made room for others.
    #[inline(never)]
    fn settle(&mut self, number: u64) {
        for at in self.guesses.about(number) {
            self.score(at);
        }
        if let Some(area) = self.areas.find_mut(number) {
            let share = area.end_record();
            self.of_area = share.map_or(self.of_area, |share| moved(self.of_area, share));
            let unused = core::mem::take(&mut area.ahead);
            self.unused.lose(unused.count());
        }
    }

    fn score(&mut self, at: usize) {
        let (area, guess) = self.guesses.get(at);
        if let Some(area) = self.areas.find_mut(area) {
            let unused = guess.pages.and(&area.ahead);
            area.ahead = area.ahead.without(&unused);
            self.guesses.sample(at, &area.touched);
            self.unused.lose(unused.count());
        }
        self.guesses.drop(at);
    }
}

#[cfg(test)]
mod tests;
