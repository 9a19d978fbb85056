//! Which region a touch is a reason to read.

use super::confined::{Confined, LOOK, MATURE};
use super::region::{CONFINED, Region};
use super::{AREA, Density, Event, LEAST, LEVELS, Room, Touch};

/// Areas that the frontier is in front of its reader, at most.
const FRONT: u64 = 4;

impl Density {
    /// The region of which something may be read for a touch that no stream expected: around
    /// it, or in front of its reader. None if it is not in a dense region.
    #[inline(never)]
    pub(super) fn choose(&mut self, event: &Event, room: &Room) -> Option<Region> {
        let around = match self.dense_around(event, room.clock) {
            Some(around) => around,
            None => return self.confined_around(event, room),
        };
        if event.touch == Touch::Miss || self.absent_in(&around) > 0 {
            return Some(around);
        }
        let front = self.area_in_front(event, room);
        let Some(front) = front.or_else(|| self.frontier(event, room)) else {
            return Some(around);
        };
        self.enter_front(front.area(), event.page / AREA, room.clock);
        let level = usize::from(front.level);
        Some(Region {
            is_front: true,
            ..self.region(front.start, level, event.file_pages)
        })
    }

    /// The largest dense region around a touch that is of a trusted kind.
    #[inline(never)]
    pub(super) fn dense_around(&mut self, event: &Event, clock: u32) -> Option<Region> {
        let number = event.page / AREA;
        let is_known = |number| self.areas.find(number).is_some();
        let area = self.areas.find(number)?;
        if area.mapped.count() <= LEAST / 2
            && !is_known(number.wrapping_sub(1))
            && !is_known(number + 1)
        {
            return None;
        }
        match self.may_be_dense(number, event.file_pages) {
            true => self.largest_dense(event, clock),
            false => None,
        }
    }

    /// False if no region of an area is dense. Regions are of whole aligned eights, and are dense by more than a half of them, or by
    /// three quarters of a region beside: in some eight there are five pages.
    pub(super) fn may_be_dense(&self, number: u64, file_pages: u64) -> bool {
        let near = [number.wrapping_sub(1), number, number + 1];
        let mut near = near
            .into_iter()
            .filter_map(|number| self.areas.find(number));
        (number + 2) * AREA > file_pages
            || near.any(|area| area.gap_period.is_some() || area.may_be_dense())
    }

    /// As `dense_around`, of an area that has a few touches.
    #[inline(never)]
    pub(super) fn largest_dense(&mut self, event: &Event, clock: u32) -> Option<Region> {
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

    /// The area of a touch, if its reader is confined and that is to be trusted.
    #[inline(never)]
    pub(super) fn confined_around(&mut self, event: &Event, room: &Room) -> Option<Region> {
        let area = self.areas.find(event.page / AREA)?;
        if area.seen.count() < MATURE || !self.guesses.is_trusted(CONFINED) {
            return None;
        }
        if room.clock.wrapping_sub(self.confined.looked) >= LOOK {
            self.confined = Confined::look(&self.areas, event.file_pages, room);
        }
        self.confined.is_so.then(|| Region {
            is_confined: true,
            ..self.region(event.page, LEVELS - 1, event.file_pages)
        })
    }

    /// True if a region that was touched is dense, or is to be taken for it.
    pub(super) fn is_dense(&self, region: &Region, file_pages: u64) -> bool {
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
                beside.is_some_and(|beside| {
                    beside.has_gaps == region.has_gaps && self.is_full(&beside)
                })
            })
    }

    /// True if nearly all of a region is used; or was read, where that is as good.
    pub(super) fn is_full(&self, region: &Region) -> bool {
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
    pub(super) fn used_of(&self, region: &Region) -> u64 {
        let area = self.areas.find(region.area());
        area.map_or(0, |area| area.touched_in(&region.range()))
    }

    pub(super) fn absent_in(&self, region: &Region) -> u64 {
        match self.areas.find(region.area()) {
            Some(area) => area.absent_in(&region.range()),
            None => region.count(),
        }
    }

    /// The region in front of a reader that has used half of the one it is in.
    #[inline(never)]
    pub(super) fn frontier(&mut self, event: &Event, room: &Room) -> Option<Region> {
        let file_pages = event.file_pages;
        let mut guessed = false;
        for level in (0..LEVELS).rev() {
            let region = self.region(event.page, level, file_pages);
            if self.used_of(&region) * 2 < region.count() {
                continue;
            }
            // A reader may come from outside of the file.
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
}
