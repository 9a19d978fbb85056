//! The area in front of a reader that uses up one area after another, in any order within a few of them.
//!
//! Where a window of a shuffle is larger than an area, both neighbours of an open area are open too, or not read yet, when the
//! next window begins. So this looks past the open areas on both sides: for areas that are used up on one side, and for the
//! first one that is not read yet on the other. The distance grows with the areas that are used up without a break: one area
//! in front of the open ones, and one more for each sixteen.

use super::region::Region;
use super::{AREA, Density, Event, LEVELS, Room};

/// Areas that may be open at once.
const OPEN: i64 = 16;
/// Areas used up without a break: those that count, at most, and those that are needed.
const BEHIND: u64 = 32;
const ENOUGH: u64 = 2;
/// Areas used up for each further one in front.
const SHARE: u64 = 16;

impl Density {
    /// The first area in front of the open ones that is not read yet, if there is reason to read it.
    #[inline(never)]
    pub(super) fn area_in_front(&mut self, event: &Event, room: &Room) -> Option<Region> {
        // Where areas stay open for long, what is read early takes memory from them.
        if !self.is_quick(room.memory) {
            return None;
        }
        let here = self.region(event.page, LEVELS - 1, event.file_pages);
        let front = [1, -1].into_iter().find_map(|side| {
            let behind = self.used_up(&here, -side, event.file_pages);
            if behind < ENOUGH {
                return None;
            }
            let most = 1 + behind.min(BEHIND) / SHARE;
            self.first_absent(&here, side, most, event.file_pages)
        })?;
        let front = Region {
            is_front: true,
            ..front
        };
        if !self.guesses.is_trusted(front.rank()) {
            self.enter_front(front.area(), event.page / AREA, room.clock);
            self.only_guess(&front, room.clock);
            return None;
        }
        // Not in small parts.
        (room.sure >= self.absent_in(&front)).then_some(front)
    }

    /// Areas on one side that were used up without a break, behind those that are open.
    fn used_up(&self, here: &Region, side: i64, file_pages: u64) -> u64 {
        let mut used_up = 0;
        for places in 1..=OPEN + BEHIND as i64 {
            let Some(area) = self.beside(here, places * side, file_pages) else {
                break;
            };
            let is_open =
                || places <= OPEN && self.used_of(&area) > 0 && self.absent_in(&area) == 0;
            let known = self.areas.find(area.area());
            match known.is_some_and(|known| known.is_used_up()) {
                true => used_up += 1,
                false if used_up == 0 && is_open() => {}
                false => break,
            }
        }
        used_up
    }

    /// The first area on one side of which something is neither mapped nor read ahead, with fewer than `most` before it that
    /// are read and have no touch.
    fn first_absent(&self, here: &Region, side: i64, most: u64, file_pages: u64) -> Option<Region> {
        let mut waiting = 0;
        for places in 1..=OPEN + BEHIND as i64 {
            let area = self.beside(here, places * side, file_pages)?;
            if self.absent_in(&area) > 0 {
                return Some(area);
            }
            if self.used_of(&area) == 0 {
                waiting += 1;
                if waiting == most {
                    return None;
                }
            }
        }
        None
    }
}
