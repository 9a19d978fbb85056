//! `mprotect(2)` for the processor's own accesses. For faults the VMAs have the protection.

use super::Anonymous;
use crate::mmu::MmuError;
use crate::page::Protection;
use core::ops::Range;

impl Anonymous {
    /// Lets the whole window be used for this. It stays readable: its pages are
    /// written to swap from where they are.
    pub fn restrict(&self, protection: Protection) -> Result<(), MmuError> {
        self.restrict_part(&self.addresses(), protection)
    }

    /// The same of some of its pages.
    pub fn restrict_part(
        &self,
        part: &Range<usize>,
        protection: Protection,
    ) -> Result<(), MmuError> {
        assert!(protection != Protection::None, "swap reads the pages");
        let window = self.window.reservation();
        self.node.mmu.restrict(window, part, protection)
    }
}
