//! Read-ahead by density: which pages of a region are touched, not in which order.
//!
//! A *region* is aligned, of 8 to 512 pages; each is a half of the next larger one. A touch
//! that no stream expected asks for the largest region around it that is *dense*:
//!
//! - more than half of it is touched (a quarter would find shuffles sooner, and take strides for them); or
//! - three quarters of a region of its size beside it are, and some touches were in this one.
//!
//! Where an area has regular gaps (texture.rs), all of this is about what lies between them.
//!
//! What is missing of it is read. Where half of a dense region is used, and the region behind
//! it is dense, the one in front follows (the *frontier*): so the reader of any order within
//! regions, and of regions in any direction, finds its pages read.
//!
//! **What it may cost.** A page that was read for this reason and is not used yet is a loan:
//! loans are at most 512 pages, or a part of what was lent and used before: a half in regions of a
//! size that has proven itself, a quarter in others, a sixteenth where there are gaps; a page
//! that was lent in vain undoes eight that were used. Each reading
//! is a guess that is judged later by the touches in it; regions of a size whose guesses come out
//! below four fifths are not read any more, only guessed, until guesses are right again; those
//! around a reader and those in front of him are trusted apart.
//! So that touches are seen, regions of a size that has not proven itself are read page by
//! page, and afterwards two blocks of an area.
//!
//! The tree of regions with half as the threshold is that of NVIDIA's driver for unified
//! memory (Ganguly et al., ISCA 2019, <https://doi.org/10.1145/3307650.3322224>); regions
//! beside, guesses and loans are ours.

mod region;

use super::areas::{AREA, Area, Areas, Blocks, Pages, samples};
use super::guess::Guesses;
use super::loans::Loans;
use super::texture::Texture;
use super::{Ahead, Event, FOLIO, Planned, Touch};
use core::ops::Range;
use region::Region;

/// Pages of the smallest region.
const LEAST: u64 = 8;
/// Sizes of regions: 8, 16, .. 512 pages.
pub(super) const LEVELS: usize = 7;
const _: () = assert!(LEAST << (LEVELS - 1) == AREA);

/// Touched pages of an area at which gaps are looked for again, if it has none yet.
const LOOKS: [u64; 4] = [8, 24, 48, 96];
/// Blocks of an area that were evicted, until it is taken for evicted as a whole.
const LOST: u8 = 2;
/// Touches without a reading, where there was no room for all of the last one.
const PAUSE: u8 = 16;
/// Areas that the frontier is in front of its reader, at most.
const FRONT: u64 = 4;

/// Protected by the lock of the page cache.
pub(super) struct Density {
    areas: Areas,
    guesses: Guesses,
    /// What areas have ahead.
    loans: Loans,
    /// The area of the last reading.
    last: u64,
    /// Touches until the next reading, after one for which there was no room.
    pause: u8,
}

/// What may be read now.
pub(super) struct Room {
    /// Pages, of all that may be outstanding.
    pub(super) pages: u64,
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
            loans: Loans::NONE,
            last: 0,
            pause: 0,
        }
    }

    /// Forgets what was touched, and what came out of guesses about it.
    pub(super) fn forget(&mut self) {
        self.areas.forget();
        self.guesses.forget_all();
        self.loans.take_back(u64::MAX);
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
        };
        if let Some(area) = self.areas.find(start / AREA)
            && area.texture.is_some()
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
        if let Some(gone) = self.areas.last_of(number, clock) {
            self.settle(gone);
        }
        if self.areas.find(number).is_none() {
            self.areas.touch(number, clock);
            self.look_for_gaps(number, [number.wrapping_sub(1), number + 1]);
        }
    }

    /// Makes room for an area that a reader in another one is expected in.
    #[inline(never)]
    fn enter_front(&mut self, number: u64, reader: u64, clock: u32) {
        let is_new = self.areas.find(number).is_none();
        self.enter(number, clock);
        if is_new && (self.areas.find(number)).is_some_and(|area| area.texture.is_none()) {
            self.look_for_gaps(number, [reader]);
        }
    }

    /// Expects in an area the regular gaps of others.
    #[inline(never)]
    fn look_for_gaps<const N: usize>(&mut self, number: u64, others: [u64; N]) {
        for other in others {
            let Some(area) = self.areas.find(other) else {
                continue;
            };
            let texture = (area.texture).or_else(|| Texture::of(other, &area.touched));
            if let (Some(_), Some(area)) = (texture, self.areas.find_mut(number)) {
                area.expect(texture);
                // Read before the gaps were known.
                let lost = area.ahead.without(&area.expected);
                area.ahead = area.ahead.without(&lost);
                self.loans.lose(lost.count());
                return;
            }
        }
    }

    /// What is known of the area that a page is in.
    pub(super) fn area_of(&self, page: u64) -> Option<&Area> {
        self.areas.find(page / AREA)
    }

    /// True if a stride is all that was touched beside a page.
    pub(super) fn is_stride(&self, page: u64) -> bool {
        let texture = self.areas.find(page / AREA).and_then(|area| area.texture);
        texture.is_some_and(|texture| texture.is_stride())
    }

    /// Takes note of a touch, before it is known what will be read for it.
    #[inline(never)]
    pub(super) fn note(&mut self, event: &Event, clock: u32) {
        let number = event.page / AREA;
        self.enter(number, clock);
        let bit = event.page % AREA;
        let area = self.areas.touch(number, clock);
        if event.touch == Touch::Miss {
            let block = Pages::range(bit - bit % FOLIO..bit - bit % FOLIO + FOLIO);
            area.written_off = area.written_off.without(&block);
        }
        if event.touch == Touch::Miss && area.mapped.has(bit) {
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
            self.loans.lose(lost.count());
        }
        let area = self.areas.touch(number, clock);
        area.touched.add(bit);
        area.seen.add(bit);
        let count = area.touched.count();
        if area.texture.is_some() {
            let strange = area.touched.without(&area.expected).count();
            if strange > 2 + count / 8 {
                area.expect(None);
            }
        } else if LOOKS.contains(&count) {
            // The area beside it may not have been complete when this one was entered.
            self.look_for_gaps(number, [number.wrapping_sub(1), number + 1]);
        }
        match event.touch {
            Touch::FirstUse => self.mapped(event.folio.clone(), clock),
            Touch::Miss => self.mapped(event.page..event.page + 1, clock),
        }
        self.judge_over(number, clock);
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
            let area = self.areas.touch(start / AREA, clock);
            let first = start % AREA;
            let pages = Pages::range(first..first + (end - start));
            let lent = area.ahead.and(&pages);
            // A folio of several pages is read where that was right so far: all of it counts.
            area.touched = area.touched.or(&lent);
            let used = lent.count();
            area.ahead = area.ahead.without(&pages);
            area.mapped = area.mapped.or(&pages);
            let late = area.written_off.and(&pages);
            area.written_off = area.written_off.without(&late);
            self.loans.use_up(used);
            self.loans.find_again(late.count());
            start = end;
        }
    }

    /// The region of which something may be read for a touch that no stream expected: around
    /// it, or in front of its reader. None if it is not in a dense region.
    #[inline(never)]
    fn choose(&mut self, event: &Event, room: &Room) -> Option<Region> {
        let around = self.dense_around(event, room.clock)?;
        if event.touch == Touch::Miss || self.absent_in(&around) > 0 {
            return Some(around);
        }
        let Some(front) = self.frontier(event, room) else {
            return Some(around);
        };
        self.enter_front(front.area(), event.page / AREA, room.clock);
        let level = usize::from(front.level);
        Some(Region {
            is_front: true,
            ..self.region(front.start, level, event.file_pages)
        })
    }

    /// What is to be read for a touch that no stream expected. None if it is not in a dense
    /// region.
    pub(super) fn plan(&mut self, event: &Event, room: &Room) -> Option<Planned> {
        let region = self.choose(event, room)?;
        let is_sure = self.guesses.is_sure(region.rank());
        let seen = samples(region.area());
        let is_seen = !is_sure || room.pages < FOLIO || seen.have(event.page % AREA);
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
        let credit = self.loans.credit(share);
        let most = (room.pages.saturating_sub(extra)).min(credit);
        let ahead = self.ahead(event, &region, &demand, most.min(room.window), room.clock);
        Some(Planned { demand, ahead })
    }

    /// What is to be read of a region beside what the touch maps, at most so many pages.
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
        self.loans.lend(count);
        self.last = region.area();
        let single = match is_sure {
            true => samples(region.area()),
            false => Blocks::ALL,
        };
        let visible = pages.and(&single.pages());
        let (at, _) = self.guess(region, clock);
        self.guesses.add(at, &pages, &visible, clock);
        Ahead::Area(super::reads::AreaPages {
            start: first,
            pages,
            single,
        })
    }

    /// Takes note of pages of an area that are read ahead for another reason: they are not
    /// absent.
    pub(super) fn reads(&mut self, first: u64, pages: &Pages, clock: u32) {
        let area = self.areas.touch(first / AREA, clock);
        area.mapped = area.mapped.or(&pages.without(&area.ahead));
    }

    /// The last reading was asked for in order, and there was no room from this page on: those
    /// pages are no loan.
    pub(super) fn refused(&mut self, page: u64) {
        let pages = Pages::range(page % AREA..AREA);
        self.pause = PAUSE;
        if let Some(area) = self.areas.find_mut(self.last)
            && page / AREA == self.last
        {
            let lent = area.ahead.and(&pages);
            area.ahead = area.ahead.without(&lent);
            self.loans.take_back(lent.count());
            self.guesses.forget(self.last, &pages);
        }
    }

    /// True if a block could be lent anywhere.
    pub(super) fn has_credit(&self) -> bool {
        self.loans.credit(16) >= FOLIO && self.pause == 0
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

    /// The largest dense region around a touch that is of a trusted kind.
    #[inline(never)]
    fn dense_around(&mut self, event: &Event, clock: u32) -> Option<Region> {
        let number = event.page / AREA;
        let is_known = |number| self.areas.find(number).is_some();
        let area = self.areas.find(number)?;
        if area.mapped.count() <= LEAST / 2
            && !is_known(number.wrapping_sub(1))
            && !is_known(number + 1)
        {
            return None;
        }
        let mut guessed = false;
        for level in (0..LEVELS).rev() {
            let region = self.region(event.page, level, event.file_pages);
            if !self.is_dense(&region, event.file_pages) {
                continue;
            }
            if self.guesses.is_trusted(region.rank()) {
                return Some(region);
            }
            if !guessed && self.absent_in(&region) > 0 {
                self.only_guess(&region, clock);
                guessed = true;
            }
        }
        None
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

    /// True if a region that was touched is dense, or is to be taken for it.
    fn is_dense(&self, region: &Region, file_pages: u64) -> bool {
        let Some(area) = self.areas.find(region.area()) else {
            return false;
        };
        let own = area.touched_in(&region.range());
        if own * 2 > region.count() && own > LEAST / 2 {
            return true;
        }
        let needed = match self.guesses.is_sure(region.rank()) {
            true => 1,
            false => (region.count() / 32).max(1),
        };
        own >= needed
            && [-1, 1].iter().any(|&side| {
                let beside = self.beside(region, side, file_pages);
                beside.is_some_and(|beside| self.is_full(&beside))
            })
    }

    /// True if nearly all of a region is used; or was read, where that is as good.
    fn is_full(&self, region: &Region) -> bool {
        let Some(area) = self.areas.find(region.area()) else {
            return false;
        };
        let ahead = match self.guesses.is_sure(region.rank()) {
            true => area.ahead_in(&region.range()),
            false => 0,
        };
        (area.touched_in(&region.range()) + ahead) * 4 >= region.count().max(1) * 3
    }

    /// Pages of a region that were used.
    fn used_of(&self, region: &Region) -> u64 {
        let area = self.areas.find(region.area());
        area.map_or(0, |area| area.touched_in(&region.range()))
    }

    fn absent_in(&self, region: &Region) -> u64 {
        match self.areas.find(region.area()) {
            Some(area) => area.absent_in(&region.range()),
            None => region.count(),
        }
    }

    /// The region in front of a reader that has used half of the one it is in.
    #[inline(never)]
    fn frontier(&mut self, event: &Event, room: &Room) -> Option<Region> {
        let file_pages = event.file_pages;
        let mut guessed = false;
        for level in (0..LEVELS).rev() {
            let region = self.region(event.page, level, file_pages);
            if self.used_of(&region) * 2 < region.count() {
                continue;
            }
            // What lies outside of the file is where a reader may come from.
            let is_used = |side| match self.beside(&region, side, file_pages) {
                Some(beside) => self.used_of(&beside) * 4 >= beside.count().max(1) * 3,
                None => true,
            };
            let forwards = match (is_used(-1), is_used(1)) {
                (true, false) => 1,
                (false, true) => -1,
                (true, true) => return None,
                (false, false) => continue,
            };
            let most = match level + 1 == LEVELS && !region.has_gaps {
                true => (room.pages.min(4 * room.window) / 4 / AREA).clamp(1, FRONT),
                false => 1,
            };
            let absent = |places| {
                let front = self.beside(&region, places * forwards, file_pages)?;
                let front = Region {
                    is_front: true,
                    ..front
                };
                (self.absent_in(&front) > 0).then_some(front)
            };
            let front = (1..=most as i64).find_map(absent);
            match front {
                Some(front) if !self.guesses.is_trusted(front.rank()) => {
                    if !guessed {
                        self.enter_front(front.area(), event.page / AREA, room.clock);
                        self.only_guess(&front, room.clock);
                        guessed = true;
                    }
                }
                front => return front,
            }
        }
        None
    }

    /// Judges the guesses that came true in an area, and any other that had its time.
    #[inline(never)]
    fn judge_over(&mut self, number: u64, clock: u32) {
        let other = self.guesses.next_to_look_at();
        for at in self.guesses.about(number).chain([other]) {
            if self.guesses.is_over(at, clock, &self.areas) {
                self.judge_one(at);
            }
        }
    }

    /// An area will be forgotten: its guesses are judged, and what is still ahead in it was
    /// lent in vain, by guesses that have made room for others.
    #[inline(never)]
    fn settle(&mut self, number: u64) {
        for at in self.guesses.about(number) {
            self.judge_one(at);
        }
        if let Some(area) = self.areas.find_mut(number) {
            let unused = core::mem::take(&mut area.ahead);
            self.loans.lose(unused.count());
        }
    }

    fn judge_one(&mut self, at: usize) {
        let (area, guess) = self.guesses.get(at);
        if let Some(area) = self.areas.find_mut(area) {
            let unused = guess.pages.and(&area.ahead);
            area.ahead = area.ahead.without(&unused);
            area.written_off = area.written_off.or(&unused);
            self.guesses.sample(at, &area.touched);
            self.loans.lose(unused.count());
        }
        self.guesses.drop(at);
    }
}

#[cfg(test)]
mod tests;
