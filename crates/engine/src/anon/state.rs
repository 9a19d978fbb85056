//! The state of a page, as it is kept in a word.
//!
//! ```text
//!   bit   0 resident   1 swapped   2 clean   3 zero   4 stays   5-6 level   7 written   8-24 age, or passes
//! ```
//!
//! Resident and swapped exclude each other; neither is absent. Clean and zero are
//! of resident pages, and so are the passes; of swapped ones are the age, when it was
//! evicted, and whether it had been written while it was resident. `reclaim::heat` explains level and passes.

use core::fmt;

const RESIDENT: u32 = 1 << 0;
const SWAPPED: u32 = 1 << 1;
const CLEAN: u32 = 1 << 2;
const ZERO: u32 = 1 << 3;
const STAYS: u32 = 1 << 4;
const LEVEL_SHIFT: u32 = 5;
const LEVEL: u32 = 3 << LEVEL_SHIFT;
const WRITTEN: u32 = 1 << 7;
const AGE_SHIFT: u32 = 8;
const AGE: u32 = AGE_MASK << AGE_SHIFT;

/// The bits of an age.
pub const AGE_MASK: u32 = (1 << 17) - 1;
/// The highest level.
pub const MOST_LEVEL: u32 = 3;

/// The state of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageState(u32);

impl PageState {
    /// In no window and no slot.
    pub const ABSENT: Self = Self(0);

    /// As kept in a word.
    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// As kept in a word.
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// Neither resident nor swapped.
    pub fn is_absent(self) -> bool {
        self.0 & (RESIDENT | SWAPPED) == 0
    }

    /// In the window.
    pub fn is_resident(self) -> bool {
        self.0 & RESIDENT != 0
    }

    /// In its slot only.
    pub fn is_swapped(self) -> bool {
        self.0 & SWAPPED != 0
    }

    /// Resident, and the same as where it would come from again.
    pub fn is_clean(self) -> bool {
        self.0 & CLEAN != 0
    }

    /// Resident and zeros, for which no memory is charged.
    pub fn is_zero(self) -> bool {
        self.0 & ZERO != 0
    }

    /// Never evicted: `mlock`.
    pub fn stays(self) -> bool {
        self.0 & STAYS != 0
    }

    /// How often it has come back soon after it was evicted.
    pub fn level(self) -> u32 {
        (self.0 & LEVEL) >> LEVEL_SHIFT
    }

    /// When it was evicted: a clock of [`AGE_MASK`].
    pub fn age(self) -> u32 {
        (self.0 & AGE) >> AGE_SHIFT
    }

    /// Swapped, after it had been written.
    pub fn was_written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    /// How many passes of the hand a resident page survives yet.
    pub fn passes(self) -> u32 {
        self.age()
    }

    fn becomes(self, bits: u32) -> Self {
        let kept = match self.is_resident() && bits & RESIDENT != 0 {
            true => STAYS | LEVEL | AGE,
            false => STAYS | LEVEL,
        };
        Self(self.0 & kept | bits)
    }

    /// Resident, and written.
    pub fn to_dirty(self) -> Self {
        self.becomes(RESIDENT)
    }

    /// Resident, and protected.
    pub fn to_clean(self) -> Self {
        self.becomes(RESIDENT | CLEAN)
    }

    /// Resident, as zeros without memory.
    pub fn to_zero(self) -> Self {
        self.becomes(RESIDENT | CLEAN | ZERO)
    }

    /// In its slot since the clock was `age`.
    pub fn to_swapped(self, age: u32) -> Self {
        let written = if self.is_clean() { 0 } else { WRITTEN };
        self.becomes(SWAPPED | written | (age & AGE_MASK) << AGE_SHIFT)
    }

    /// In neither; cold.
    pub fn to_absent(self) -> Self {
        Self(self.0 & STAYS)
    }

    /// At this level, with as many passes as come with it. Of a resident page.
    pub fn with_level(self, level: u32) -> Self {
        let level = level.min(MOST_LEVEL);
        let passes = (1 << level) - 1;
        Self(self.0 & !(LEVEL | AGE) | level << LEVEL_SHIFT | passes << AGE_SHIFT)
    }

    /// With one pass less.
    pub fn passed(self) -> Self {
        debug_assert!(self.is_resident() && self.passes() > 0);
        Self(self.0 - (1 << AGE_SHIFT))
    }

    /// Never evicted from now on, or evicted as others are.
    pub fn with_stays(self, stays: bool) -> Self {
        Self(if stays {
            self.0 | STAYS
        } else {
            self.0 & !STAYS
        })
    }
}

impl fmt::Debug for PageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            (self.is_absent(), "absent"),
            (self.is_resident(), "resident"),
            (self.is_swapped(), "swapped"),
            (self.is_clean(), "clean"),
            (self.is_zero(), "zero"),
            (self.stays(), "stays"),
        ];
        for (_, name) in flags.iter().filter(|(is, _)| *is) {
            write!(f, "{name} ")?;
        }
        write!(f, "level {} age {}", self.level(), self.age())
    }
}
