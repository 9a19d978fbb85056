//! The pages that small mappings are written to: often the same, one mapping after the other.
//!
//! A program that maps a little memory, writes to some of it and unmaps it does so again, as a rule to the same pages. So the
//! first write to a small mapping fills the pages that mappings of its size before it were written to.
//!
//! A mapping that was filled so does not show which pages were written to. So some are left alone, and looked at:
//!
//! ```text
//!   looked at ──┬─ the same pages: it agrees, and so do those that were filled since the last look; of the next
//!               │     mappings as many are filled as an eighth of those that agree, and 64 at most
//!               └─ others: none agrees any more
//! ```
//!
//! So when a program changes its ways, the pages filled for nothing are at most an eighth of those written to before.

use crate::lock::Mutex;
use sync::stat::Counter;

/// Pages of the largest mapping that is small.
pub(crate) const LARGEST: usize = u64::BITS as usize;
/// Mappings that agree, for one that is filled.
const PROOF: u32 = 8;
/// Mappings in a row that are filled.
const MOST: u32 = 64;
/// Sizes that something is known of.
const SIZES: usize = 16;

/// The habit of the mappings of one size.
#[derive(Debug, Clone, Copy, Default)]
struct Habit {
    /// Their pages.
    size: usize,
    /// Those that are written to, a bit each.
    written: u64,
    /// Mappings that agree.
    agree: u32,
    /// Mappings that were filled since the last look.
    filled: u32,
    /// Mappings that are to be filled until the next.
    left: u32,
}

impl Habit {
    /// A mapping was looked at, of which these pages were written to.
    fn look(&mut self, size: usize, written: u64) {
        if (self.size, self.written) != (size, written) {
            *self = Self {
                size,
                written,
                ..Self::default()
            };
        }
        self.agree = (self.agree + 1 + self.filled).min(PROOF * MOST);
        self.filled = 0;
        self.left = self.agree / PROOF;
    }

    /// The pages to fill of a mapping, if it is to be filled.
    fn fill(&mut self, size: usize, page: usize) -> u64 {
        let bit = 1 << page;
        if self.size != size || self.written & bit == 0 || self.left == 0 {
            return 0;
        }
        self.left -= 1;
        self.filled += 1;
        self.written & !bit
    }
}

/// The habits of a node's small mappings. They are a guess: its locks are only tried.
#[derive(Debug)]
pub(crate) struct Habits {
    sizes: [Mutex<Habit>; SIZES],
    /// Mappings that were looked at.
    looks: Counter,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            sizes: core::array::from_fn(|_| Mutex::new(Habit::default())),
            looks: Counter::new(),
        }
    }
}

impl Habits {
    /// A mapping of `size` pages goes that was not filled by this, and these pages of it were written to.
    pub(crate) fn look(&self, size: usize, written: u64) {
        if let Some(mut habit) = self.sizes[size % SIZES].try_lock() {
            habit.look(size, written);
        }
        self.looks.add(1);
    }

    /// The pages that are to be filled with `page`, the first that is written to of a mapping of `size` pages.
    pub(crate) fn fill(&self, size: usize, page: usize) -> u64 {
        if self.looks.get() < PROOF.into() {
            return 0;
        }
        let habit = self.sizes[size % SIZES].try_lock();
        habit.map_or(0, |mut habit| habit.fill(size, page))
    }
}

/// The first writes to one mapping.
#[derive(Debug, Default)]
pub(crate) struct FirstWrites {
    /// Pages whose first write was a fault, a bit each.
    written: Counter,
    /// Not 0: its first fault filled others.
    filled: Counter,
}

impl FirstWrites {
    /// The first write to a page was a fault.
    pub(crate) fn note(&self, page: usize) {
        self.written.set(1 << page);
    }

    /// A fault fills the pages that other mappings were written to.
    pub(crate) fn fills(&self) {
        self.filled.set(1);
    }

    /// True until the first write.
    pub(crate) fn is_new(&self) -> bool {
        self.written.get() == 0
    }

    /// The pages that were written to, if it was written to and all of them are known.
    pub(crate) fn known(&self) -> Option<u64> {
        let written = self.written.get();
        (written != 0 && self.filled.get() == 0).then_some(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many mappings of 16 pages that are written to at `written`, how many are filled, for how many pages in vain.
    fn map(habit: &mut Habit, maps: usize, written: u64) -> (usize, u32) {
        let (mut filled, mut vain) = (0, 0);
        for _ in 0..maps {
            match habit.fill(16, written.trailing_zeros() as usize) {
                0 => habit.look(16, written),
                pages => {
                    filled += 1;
                    vain += (pages & !written).count_ones();
                }
            }
        }
        (filled, vain)
    }

    #[test]
    fn of_mappings_that_agree_nearly_all_are_filled() {
        let mut habit = Habit::default();
        assert_eq!(map(&mut habit, 8, 0x1111), (0, 0));
        let (some, _) = map(&mut habit, 100, 0x1111);
        assert!(some > 20, "{some}");
        map(&mut habit, 500, 0x1111);
        let (most, _) = map(&mut habit, 650, 0x1111);
        assert!(
            (630..=640).contains(&most),
            "one of 65 is looked at: {most}"
        );
    }

    #[test]
    fn at_most_an_eighth_is_filled_in_vain() {
        for before in 1..700 {
            let mut habit = Habit::default();
            map(&mut habit, before, 0x1111);
            // The first page alone from now on.
            let (_, vain) = map(&mut habit, 1000, 1);
            assert!(vain as usize * 8 <= 3 * before, "{vain} after {before}");
            assert_eq!(habit.written, 1);
        }
    }

    #[test]
    fn a_size_is_not_taken_for_another() {
        let mut habit = Habit::default();
        map(&mut habit, 100, 0x1111);
        assert_eq!(habit.fill(32, 0), 0);
        assert_eq!(habit.fill(16, 1), 0, "nor is another page");
    }
}
