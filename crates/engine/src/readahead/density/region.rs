//! An aligned part of an area.

use super::{AREA, LEAST, LEVELS};
use core::ops::Range;

/// The rank of the guess that a confined reader touches all of its areas.
pub(super) const CONFINED: usize = crate::readahead::guess::RANKS - 1;

/// An aligned region of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: u64,
    /// Pages of it that the file has.
    pub(super) len: u16,
    /// Pages of it that may be touched.
    pub(super) count: u16,
    pub(super) level: u8,
    /// Its area has regular gaps.
    pub(super) has_gaps: bool,
    /// A reader is expected in it, and was not seen there yet.
    pub(super) is_front: bool,
    /// Its reader is confined to areas that memory can hold.
    pub(super) is_confined: bool,
}

impl Region {
    pub(super) fn area(&self) -> u64 {
        self.start / AREA
    }

    /// Where it is in its area.
    pub(super) fn range(&self) -> Range<u64> {
        let first = self.start % AREA;
        first..first + u64::from(self.len)
    }

    pub(super) fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// Its rank of trust: its size, with gaps or without, around a reader or in front.
    pub(super) fn rank(&self) -> usize {
        if self.is_confined {
            return CONFINED;
        }
        let kind = 2 * usize::from(self.is_front) + usize::from(self.has_gaps);
        kind * LEVELS + usize::from(self.level)
    }

    /// Where the region of this size is some places further.
    pub(super) fn beside(&self, places: i64) -> Option<u64> {
        let size = (LEAST << self.level) as i64;
        u64::try_from(self.start as i64 + places * size).ok()
    }
}
