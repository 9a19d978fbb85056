//! The parts of the address space that have roots of their own.

/// Where they begin: one at 0, and the others one after the other, of one size; the last goes on to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Where the second begins.
    first: usize,
    /// The size of the others, as a power of two.
    shift: u32,
    /// How many others.
    others: usize,
}

impl Parts {
    /// A single one.
    pub const ONE: Self = Self {
        first: usize::MAX,
        shift: 0,
        others: 0,
    };

    /// One up to `first`, and `others` of `1 << shift` bytes from there on.
    pub const fn new(first: usize, shift: u32, others: usize) -> Self {
        assert!(first > 0 && others > 0);
        Self {
            first,
            shift,
            others,
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        1 + self.others
    }

    /// The part that has `key`.
    #[inline]
    pub(super) fn of(&self, key: usize) -> usize {
        let above = key.checked_sub(self.first);
        above.map_or(0, |above| (1 + (above >> self.shift)).min(self.others))
    }

    /// The first key of a part, and that of the next one.
    #[inline]
    pub(super) fn bounds(&self, part: usize) -> (usize, Option<usize>) {
        let start = |part: usize| match part {
            0 => 0,
            part => self.first + ((part - 1) << self.shift),
        };
        (start(part), (part < self.others).then(|| start(part + 1)))
    }
}
