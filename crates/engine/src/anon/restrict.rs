//! `mprotect(2)` for the processor's own accesses; what faults may do, VMAs say.

use super::Anonymous;
use crate::mmu::MmuError;
use crate::page::Protection;

impl Anonymous {
    /// Lets the whole window be used for this. It stays readable: its pages are
    /// written to swap from where they are.
    pub fn restrict(&self, protection: Protection) -> Result<(), MmuError> {
        assert!(protection != Protection::None, "swap reads the pages");
        self.node
            .mmu
            .restrict(self.window.reservation(), protection)
    }
}
