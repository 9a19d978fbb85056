//! `mprotect`: changing the protection of a range.

use core::ops::Range;

use super::space::{AddressSpace, MmError};
use crate::page::Protection;

impl AddressSpace {
    /// Gives `range` this protection. When it returns, no fault is in progress
    /// that still goes by another.
    pub fn mprotect(&self, range: Range<usize>, protection: Protection) -> Result<(), MmError> {
        self.modify(range, |attributes| attributes.protection = protection)
    }
}
