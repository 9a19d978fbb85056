//! `madvise`: saying how a range will be used.

use core::ops::Range;

use super::space::{AddressSpace, MmError};
use crate::page::Advice;

impl AddressSpace {
    /// Gives `range` this advice, which faults obey from now on.
    pub fn madvise(&self, range: Range<usize>, advice: Advice) -> Result<(), MmError> {
        self.modify(range, |attributes| attributes.advice = advice)
    }
}
