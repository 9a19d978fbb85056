//! Loads and stores: by the processor where the page is there, by a signal and
//! the engine's handler where it is not.

use super::mmu::UffdMmu;
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, FaultError, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine::mm::AddressSpace;

impl UffdMmu {
    /// Reads an aligned word.
    pub fn load(&self, space: &AddressSpace, addr: usize) -> Result<u64, FaultError> {
        loop {
            self.kernel.access();
            if let Some(page) = self.windows.page(addr) {
                return Ok(page.word(addr % PAGE_SIZE));
            }
            self.signal(space, addr, false)?;
        }
    }

    /// Writes an aligned word.
    pub fn store(&self, space: &AddressSpace, addr: usize, word: u64) -> Result<(), FaultError> {
        self.kernel.access();
        while !self.windows.write(addr, word) {
            self.signal(space, addr, true)?;
            self.kernel.access();
        }
        Ok(())
    }

    /// One fault.
    fn signal(&self, space: &AddressSpace, addr: usize, write: bool) -> Result<(), FaultError> {
        if let Some(vma) = self.windows.vma(addr) {
            vma.get();
            vma.put();
        }
        self.kernel.deliver_signal();
        let flags = FaultFlags {
            write,
            ..FaultFlags::default()
        };
        let outcome = fault::handle(space, addr, flags, &NeverInterrupted);
        self.kernel.return_from_signal();
        match outcome {
            Outcome::Mapped => Ok(()),
            Outcome::Error(error) => Err(error),
            Outcome::Interrupted => unreachable!("interrupted by nobody"),
        }
    }
}
