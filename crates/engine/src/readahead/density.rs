//! Read-ahead by density: which pages of a region are touched, not in which order.
//!
//! A *region* is aligned, of 8 to 512 pages; each is a half of the next larger one. A touch
//! that no stream expected asks for the largest region around it that is *dense*:
//!
//! - more than half of it is mapped; or
//! - a region of its size beside it is (three quarters), and some touches were in this one.
//!
//! What is missing of it is read. Where half of a dense region is used, and the region behind
//! it is dense, the one in front follows (the *frontier*): so the reader of any order within
//! regions, and of regions in any direction, finds its pages read.
//!
//! **What it may cost.** A page that was read for this reason and is not used yet is a loan:
//! loans are at most a quarter of what was lent and used before, and 64 pages. Each reading is a
//! guess that is judged later by the touches in it; regions of a size whose guesses come out
//! below four fifths are not read any more, only guessed, until guesses are right again.
//! So that touches are seen, regions of a size that has not proven itself are read page by
//! page, and afterwards two blocks of an area.
//!
//! The tree of regions with half as the threshold is that of NVIDIA's driver for unified
//! memory (Ganguly et al., ISCA 2019, <https://doi.org/10.1145/3307650.3322224>); regions
//! beside, guesses and loans are ours.

use super::areas::{AREA, Areas, Pages, samples};
use super::guess::{Guess, Guesses};
use super::texture::Texture;
use super::{Ahead, Event, FOLIO, Plan, Touch};
use core::ops::Range;

/// Pages of the smallest region.
const LEAST: u64 = 8;
/// Sizes of regions: 8, 16, .. 512 pages.
pub(super) const LEVELS: usize = 7;
const _: () = assert!(LEAST << (LEVELS - 1) == AREA);

/// Loans that need no use before.
const CREDIT: u64 = 64;
/// Touched pages of an area at which gaps are looked for again, if it has none yet.
const LOOKS: [u64; 4] = [8, 24, 48, 96];
/// Areas that the frontier is in front of its reader, at most.
const FRONT: u64 = 4;

/// Protected by the lock of the page cache.
pub(super) struct Density {
    areas: Areas,
    guesses: Guesses,
    /// Pages lent and used, halved when a guess was wrong.
    used: u64,
    /// Pages lent and not used yet.
    lent: u64,
}

/// What may be read now.
pub(super) struct Room {
    /// Pages, of all that may be outstanding.
    pub(super) pages: u64,
    /// Pages in front of a reader.
    pub(super) window: u64,
    pub(super) clock: u32,
}

/// An aligned region of the file.
#[derive(Clone, Copy, Debug)]
struct Region {
    level: usize,
    start: u64,
    /// Pages of it that may be touched.
    pages: Pages,
    /// How many those are.
    count: u64,
    /// Its area has regular gaps.
    has_gaps: bool,
}

impl Region {
    fn area(&self) -> u64 {
        self.start / AREA
    }

    /// What it is trusted for: its size, with gaps or without.
    fn rank(&self) -> usize {
        match self.has_gaps {
            true => LEVELS + self.level,
            false => self.level,
        }
    }

    /// Where the region of this size is some places further.
    fn beside(&self, places: i64) -> Option<u64> {
        let size = (LEAST << self.level) as i64;
        u64::try_from(self.start as i64 + places * size).ok()
    }
}

impl Density {
    pub(super) fn new(file_pages: u64) -> Density {
        let areas = Areas::new(file_pages);
        Density {
            guesses: Guesses::new(areas.len()),
            areas,
            used: 0,
            lent: 0,
        }
    }

    /// The region of a size around a page of the file.
    fn region(&self, page: u64, level: usize, file_pages: u64) -> Region {
        let size = LEAST << level;
        let start = page - page % size;
        let first = start % AREA;
        let pages = Pages::range(first..first + file_pages.saturating_sub(start).min(size));
        let area = self.areas.find(start / AREA);
        let pages = area.map_or(pages, |area| pages.and(&area.expected));
        Region {
            level,
            start,
            pages,
            count: pages.count(),
            has_gaps: area.is_some_and(|area| area.texture.is_some()),
        }
    }

    /// The region of this size some places further. None if the file has none there.
    fn beside(&self, region: &Region, places: i64, file_pages: u64) -> Option<Region> {
        let start = region.beside(places).filter(|&start| start < file_pages)?;
        Some(self.region(start, region.level, file_pages))
    }

    /// Makes room for an area, whose pages are expected to be touched as those of the areas
    /// beside it were.
    fn enter(&mut self, number: u64, clock: u32) {
        if let Some(gone) = self.areas.last_of(number, clock) {
            self.judge_all(gone.number(), &gone.touched, &gone.ahead);
        }
        if self.areas.find(number).is_none() {
            let texture = self.texture_beside(number);
            self.areas.touch(number, clock).expect(texture);
        }
    }

    /// The regular gaps of the areas beside one.
    fn texture_beside(&self, number: u64) -> Option<Texture> {
        let beside = [number.checked_sub(1), number.checked_add(1)];
        beside.into_iter().flatten().find_map(|number| {
            let area = self.areas.find(number)?;
            (area.texture).or_else(|| Texture::of(number, &area.touched))
        })
    }

    /// True if a stride is all that was touched beside a page.
    pub(super) fn is_stride(&self, page: u64) -> bool {
        let texture = self.areas.find(page / AREA).and_then(|area| area.texture);
        texture.is_some_and(|texture| texture.is_stride())
    }

    /// Takes note of a touch, before it is known what will be read for it.
    pub(super) fn note(&mut self, event: &Event, clock: u32) {
        let number = event.page / AREA;
        self.enter(number, clock);
        let bit = event.page % AREA;
        let area = self.areas.touch(number, clock);
        if event.touch == Touch::Miss && area.mapped.has(bit) {
            // It was evicted since: so was more, and this is another pass.
            let (touched, ahead) = (area.touched, area.ahead);
            area.forget();
            self.judge_all(number, &touched, &ahead);
        } else if event.touch == Touch::Miss && area.ahead.has(bit) {
            // Dropped before it was touched, and so were its neighbours.
            let block = Pages::range(bit - bit % FOLIO..bit - bit % FOLIO + FOLIO);
            let lost = area.ahead.and(&block);
            area.ahead = area.ahead.without(&block);
            self.lent = self.lent.saturating_sub(lost.count());
            self.used /= 2;
        }
        let area = self.areas.touch(number, clock);
        let page = Pages::range(bit..bit + 1);
        area.touched = area.touched.or(&page);
        let count = area.touched.count();
        if area.texture.is_some() {
            let strange = area.touched.without(&area.expected).count();
            if strange > 2 + count / 8 {
                area.expect(None);
            }
        } else if LOOKS.contains(&count) && event.touch == Touch::Miss {
            // The area beside it may not have been complete when this one was entered.
            let texture = self.texture_beside(number);
            self.areas.touch(number, clock).expect(texture);
        }
        match event.touch {
            Touch::FirstUse => self.mapped(event.folio.clone(), clock),
            Touch::Miss => self.mapped(event.page..event.page + 1, clock),
        }
        self.judge_right(number, clock);
    }

    /// Takes note of pages that are as good as touched: those beside such a page always were.
    pub(super) fn took(&mut self, pages: Range<u64>, clock: u32) {
        let area = self.areas.touch(pages.start / AREA, clock);
        let first = pages.start % AREA;
        let pages = Pages::range(first..first + (pages.end - pages.start));
        area.touched = area.touched.or(&pages);
    }

    /// Takes note of pages that are mapped with a touch.
    pub(super) fn mapped(&mut self, pages: Range<u64>, clock: u32) {
        let mut start = pages.start;
        while start < pages.end {
            let end = (start - start % AREA + AREA).min(pages.end);
            let area = self.areas.touch(start / AREA, clock);
            let first = start % AREA;
            let pages = Pages::range(first..first + (end - start));
            let used = area.ahead.and(&pages).count();
            area.ahead = area.ahead.without(&pages);
            area.mapped = area.mapped.or(&pages);
            self.lent = self.lent.saturating_sub(used);
            self.used += used;
            start = end;
        }
    }

    /// What is to be read for a touch that no stream expected. None if it is not in a dense
    /// region.
    pub(super) fn plan(&mut self, event: &Event, room: &Room) -> Option<Plan> {
        let around = self.dense_around(event, room.clock)?;
        let absent = self.absent(&around);
        let (region, absent) = match event.touch {
            Touch::FirstUse if absent.is_empty() => match self.frontier(event, room) {
                Some(front) => front,
                None => return Some(Plan::single(event.page)),
            },
            _ => (around, absent),
        };
        let is_sure = self.guesses.is_sure(region.rank());
        let seen = samples(region.area());
        let demand = match event.touch {
            Touch::Miss if is_sure && room.pages >= FOLIO && !seen.has(event.page % AREA) => {
                self.demand(event, &region)
            }
            _ => event.page..event.page + 1,
        };
        let first = region.area() * AREA;
        let with = match event.touch {
            Touch::Miss => Pages::range(demand.start - first..demand.end - first),
            Touch::FirstUse => Pages::NONE,
        };
        let extra = demand.end - demand.start - 1;
        let from = match event.page / AREA == region.area() {
            true => event.page % AREA,
            false => region.start % AREA,
        };
        let share = match (region.has_gaps, is_sure) {
            (true, _) => 16,
            (false, true) => 2,
            (false, false) => 4,
        };
        let credit = (CREDIT.max(self.used / share)).saturating_sub(self.lent);
        let most = room
            .pages
            .saturating_sub(extra)
            .min(credit)
            .min(room.window);
        let absent = absent.without(&with);
        let pages = absent.first_from(from, most);
        // Not page by page, where there is little room.
        if pages.count() < absent.count().min(FOLIO) || pages.is_empty() {
            return Some(Plan {
                demand,
                ahead: Ahead::None,
            });
        }
        let area = self.areas.touch(region.area(), room.clock);
        area.ahead = area.ahead.or(&pages);
        self.lent += pages.count();
        let visible = match is_sure {
            true => pages.and(&seen),
            false => pages,
        };
        let single = match is_sure {
            true => seen,
            false => Pages::range(0..AREA),
        };
        self.guess(Guess::new(
            region.area(),
            region.rank(),
            pages,
            visible,
            room.clock,
        ));
        Some(Plan {
            demand,
            ahead: Ahead::Area(super::AreaPages {
                start: first,
                pages,
                single,
            }),
        })
    }

    /// The pages around a missed one that are read and mapped with it.
    fn demand(&self, event: &Event, region: &Region) -> Range<u64> {
        let first = region.area() * AREA;
        let is_in = |page: &u64| *page / AREA == region.area() && region.pages.has(page - first);
        let end = (event.page + 1..event.folio.end).take_while(is_in).last();
        let start = (event.folio.start..event.page)
            .rev()
            .take_while(is_in)
            .last();
        start.unwrap_or(event.page)..end.unwrap_or(event.page) + 1
    }

    /// The largest dense region around a touch that is of a trusted kind.
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
            let absent = self.absent(&region);
            if !guessed && !absent.is_empty() {
                let none = Pages::NONE;
                self.guess(Guess::new(
                    region.area(),
                    region.rank(),
                    none,
                    absent,
                    clock,
                ));
                guessed = true;
            }
        }
        None
    }

    /// True if a region that was touched is dense, or is to be taken for it.
    fn is_dense(&self, region: &Region, file_pages: u64) -> bool {
        let Some(area) = self.areas.find(region.area()) else {
            return false;
        };
        let own = self.used_of(region);
        if own * 2 > region.count && own > LEAST / 2 {
            return true;
        }
        let needed = match self.guesses.is_sure(region.rank()) {
            true => 1,
            false => (region.count / 32).max(1),
        };
        let is_full = |side| {
            let beside = self.beside(region, side, file_pages);
            beside.is_some_and(|beside| self.is_full(&beside))
        };
        area.touched.and(&region.pages).count() >= needed && (is_full(-1) || is_full(1))
    }

    /// True if nearly all of a region is used; or was read, where that is as good.
    fn is_full(&self, region: &Region) -> bool {
        let ahead = match (
            self.guesses.is_sure(region.rank()),
            self.areas.find(region.area()),
        ) {
            (true, Some(area)) => area.ahead.and(&region.pages).count(),
            _ => 0,
        };
        (self.used_of(region) + ahead) * 4 >= region.count.max(1) * 3
    }

    /// True if nearly all of a region is used.
    fn is_used(&self, region: &Region) -> bool {
        self.used_of(region) * 4 >= region.count.max(1) * 3
    }

    /// Pages of a region that count as used: those that were touched and, where that was
    /// right so far, those that were mapped with them.
    fn used_of(&self, region: &Region) -> u64 {
        let Some(area) = self.areas.find(region.area()) else {
            return 0;
        };
        let used = match self.guesses.is_sure(region.rank()) {
            true => &area.mapped,
            false => &area.touched,
        };
        used.and(&region.pages).count()
    }

    fn absent(&self, region: &Region) -> Pages {
        match self.areas.find(region.area()) {
            Some(area) => region.pages.without(&area.mapped.or(&area.ahead)),
            None => region.pages,
        }
    }

    /// The region in front of a reader that has used half of the one it is in.
    fn frontier(&mut self, event: &Event, room: &Room) -> Option<(Region, Pages)> {
        let file_pages = event.file_pages;
        for level in (0..LEVELS).rev() {
            let region = self.region(event.page, level, file_pages);
            if !self.guesses.is_trusted(region.rank()) {
                continue;
            }
            if self.used_of(&region) * 2 < region.count {
                continue;
            }
            // What lies outside of the file is where a reader may come from.
            let is_used = |side| match self.beside(&region, side, file_pages) {
                Some(beside) => self.is_used(&beside),
                None => true,
            };
            let forwards = match (is_used(-1), is_used(1)) {
                (true, false) => 1,
                (false, true) => -1,
                (true, true) => return None,
                (false, false) => continue,
            };
            let most = match level + 1 == LEVELS && !region.has_gaps {
                true => (room.window / AREA).clamp(1, FRONT),
                false => 1,
            };
            return (1..=most as i64).find_map(|places| {
                let start = region.beside(places * forwards)?;
                if start >= file_pages {
                    return None;
                }
                self.enter(start / AREA, room.clock);
                let front = self.region(start, level, file_pages);
                let absent = self.absent(&front);
                (!absent.is_empty()).then_some((front, absent))
            });
        }
        None
    }

    fn guess(&mut self, guess: Guess) {
        if let Some(early) = self.guesses.push(guess) {
            self.take_back(&early);
        }
    }

    /// Judges the guesses that came true, and those that had their time.
    fn judge_right(&mut self, number: u64, clock: u32) {
        while let Some(guess) = self.guesses.take_over(number, clock, &self.areas) {
            self.judge(&guess);
        }
    }

    /// Judges all guesses about an area that is forgotten.
    fn judge_all(&mut self, number: u64, touched: &Pages, ahead: &Pages) {
        while let Some(guess) = self.guesses.take_of(number) {
            self.lent = self.lent.saturating_sub(guess.pages.and(ahead).count());
            self.guesses.sample(&guess, touched);
        }
    }

    fn judge(&mut self, guess: &Guess) {
        let unused = self.take_back(guess);
        if unused * 4 > guess.pages.count() {
            self.used /= 2;
        }
        if let Some(area) = self.areas.find(guess.area) {
            self.guesses.sample(guess, &area.touched);
        }
    }

    /// Counts what was lent for a guess and not used as given back; returns how much that is.
    fn take_back(&mut self, guess: &Guess) -> u64 {
        let Some(area) = self.areas.find_mut(guess.area) else {
            return 0;
        };
        let unused = guess.pages.and(&area.ahead);
        area.ahead = area.ahead.without(&unused);
        self.lent = self.lent.saturating_sub(unused.count());
        unused.count()
    }
}
