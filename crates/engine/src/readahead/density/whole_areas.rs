//! Areas that are read as a whole for a first touch out of the blue.
//!
//! What becomes of such an area shows when it is forgotten, long after. So each takes from a credit, and later touches in it
//! bring that back: a reader that begins to touch single pages anywhere has used the credit up soon.

use super::super::records::LIKELY;
use super::{AREA, Density};

const MOST: u8 = 64;
const AN_AREA: u8 = 4;

/// What is left. Protected by the lock of the page cache.
pub(super) struct Credit(u8);

impl Credit {
    pub(super) const ALL: Credit = Credit(MOST);

    /// A later touch in such an area, or another area that was touched as a whole.
    pub(super) fn bring_back(&mut self, is_whole: bool) {
        self.0 = (self.0 + if is_whole { AN_AREA } else { 1 }).min(MOST);
    }
}

impl Density {
    /// True if areas that begin out of the blue are touched as a whole in the end.
    pub(in super::super) fn takes_areas(&self) -> bool {
        self.of_area >= LIKELY && self.credit.0 >= AN_AREA
    }

    /// An area is read as a whole for its first touch.
    pub(in super::super) fn take_area(&mut self, page: u64, clock: u32) {
        let area = self.areas.touch(page / AREA, clock);
        if !core::mem::replace(&mut area.is_taken, true) {
            self.credit.0 = self.credit.0.saturating_sub(AN_AREA);
        }
    }
}
