//! A reader that keeps to areas that memory can hold, and areas that memory cannot hold.
//!
//! Where all touches of late fell into areas that were touched before, at random in each of them, and
//! all of those fit in memory, its reader may be taken to come by the rest of them: long before a half of any
//! is touched. Records and strides are told apart by how many touched pages have one beside them: by chance
//! that is the square of the share that was touched.

use super::{AREA, Areas, Room};

/// Touched pages of an area from which it is no newcomer.
pub(super) const MATURE: u64 = 32;
/// Touches between two looks at all areas; and without one after which an area is not open any
/// more.
pub(super) const LOOK: u32 = 64;
const OPEN: u32 = 8192;
/// Touched pages of all of them, at least: in areas that are most of the file, and in fewer than an eighth of it, where so many
/// touches are no chance.
const ENOUGH: u64 = 2048;
const ENOUGH_OF_FEW: u64 = 64;
/// Pages that were mapped too early until others are read page by page, and for how many touches
/// at most.
pub(super) const EARLY: u8 = 8;
const MOST_APART: u64 = 1 << 24;

/// Whether pages are read page by page: memory does not keep pages that are mapped with another until they
/// are touched.
#[derive(Default)]
pub(super) struct Apart {
    /// Clock of its begin.
    begin: u32,
    /// Touches that it lasts. 0: it is over, however far the clock goes round.
    touches: u32,
}

impl Apart {
    pub(super) fn start(&mut self, touches: u64, clock: u32) {
        self.begin = clock;
        self.touches = touches.min(MOST_APART) as u32;
    }

    pub(super) fn is_on(&self, clock: u32) -> bool {
        clock.wrapping_sub(self.begin) < self.touches
    }

    /// At each touch: ends it, when its time has come.
    pub(super) fn end_if_over(&mut self, clock: u32) {
        if !self.is_on(clock) {
            self.touches = 0;
        }
    }
}

/// Whether all touches of late were in areas that were touched before, at random in them, and that
/// memory can hold.
pub(super) struct Confined {
    pub(super) is_so: bool,
    /// Pages of those areas that were touched.
    pub(super) touched: u64,
    /// Clock of the last look.
    pub(super) looked: u32,
}

impl Confined {
    pub(super) const NONE: Confined = Confined {
        is_so: false,
        touched: 0,
        looked: 0,
    };

    #[inline(never)]
    pub(super) fn look(areas: &Areas, file_pages: u64, room: &Room) -> Confined {
        let (mut open, mut mature) = (0, 0);
        let (mut touched, mut pairs, mut by_chance) = (0, 0, 0);
        for area in areas.iter().filter(|area| area.age(room.clock) < OPEN) {
            let count = area.seen.count();
            if area.touched.count() * 8 > AREA * 7 {
                continue;
            }
            open += 1;
            if count >= MATURE {
                mature += 1;
                touched += count;
                pairs += area.seen.pairs();
                by_chance += count * count / AREA;
            }
        }
        let enough = match open * AREA * 8 <= file_pages {
            true => ENOUGH_OF_FEW,
            false => ENOUGH,
        };
        let is_random = by_chance >= 8 && pairs * 2 >= by_chance && pairs <= by_chance * 2;
        Confined {
            is_so: is_random
                && touched >= enough
                && mature * 8 >= open * 7
                && open * AREA <= room.memory,
            touched,
            looked: room.clock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_stays_so_when_the_clock_goes_round() {
        assert!(!Apart::default().is_on((1 << 31) + 1));
        let mut apart = Apart::default();
        apart.start(100, u32::MAX - 10);
        assert!(apart.is_on(u32::MAX) && apart.is_on(88) && !apart.is_on(89));
        apart.end_if_over(88);
        assert!(apart.is_on(88));
        apart.end_if_over(89);
        // Once round.
        assert!(!apart.is_on(u32::MAX));
    }
}
