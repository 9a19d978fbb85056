//! An entry of a soft page table, as 64 bits: the frame above, flags below.

use super::frames::ZEROS;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const SHARED: u64 = 4;
const FRAME_SHIFT: u32 = 32;

/// A page-table entry. All zero: nothing is there.
///
/// | present | writable | shared | frame | is |
/// |---|---|---|---|---|
/// | - | - | - | 0 | a missing page, or table |
/// | x | - | - | n | a page of a file, a page of memory that is protected, or a table |
/// | x | x | - | n | a page of memory |
/// | x | - | x | n | a page of memory, shared since a fork: copied when written to |
/// | x | - | - | 0 | a hole: zeros without memory |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pte(u64);

impl Pte {
    /// A missing page.
    pub const NONE: Self = Self(0);
    /// A hole.
    pub const HOLE: Self = Self(PRESENT);

    /// A table, or a page that may not be written to.
    pub fn read_only(frame: u32) -> Self {
        Self((frame as u64) << FRAME_SHIFT | PRESENT)
    }

    /// A page that may be written to.
    pub fn writable(frame: u32) -> Self {
        Self(Self::read_only(frame).0 | WRITABLE)
    }

    /// The same page, not to be written to.
    pub fn protected(self) -> Self {
        Self(self.0 & !WRITABLE)
    }

    /// The same page as another window shows it too: nobody writes to it.
    pub fn shared(self) -> Self {
        if self == Self::HOLE {
            return self;
        }
        Self(self.0 & !WRITABLE | SHARED)
    }

    /// As stored in a table.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// As stored in a table.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// True if a page or table is there.
    pub fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// True if the page may be written to.
    pub fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// True if the page was shared by a fork.
    pub fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// The frame of a present entry.
    pub fn frame(self) -> u32 {
        (self.0 >> FRAME_SHIFT) as u32
    }

    /// The frame, if the entry holds a reference to one.
    pub fn owned(self) -> Option<u32> {
        (self.frame() != ZEROS).then(|| self.frame())
    }
}
