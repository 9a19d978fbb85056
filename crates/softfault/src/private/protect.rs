//! Whether the map may be written to.

use super::Private;
use crate::error;
use crate::managed::Managed;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::MmuError;
use std::io;

impl Private {
    /// Lets the map be read only, or be written to as well. A fault goes by what the
    /// space says, a touch of a page that is there by what the window does.
    pub(crate) fn protect(&mut self, managed: &Managed, protection: Protection) -> io::Result<()> {
        {
            let _masked = self.reached.masked();
            self.anon.restrict(protection).map_err(refused)?;
            let changed = managed.space.mprotect(self.window(), protection);
            if changed.is_err() {
                let _ = self.anon.restrict(self.protection);
            }
            changed.map_err(error::mm)?;
        }
        self.protection = protection;
        if protection == Protection::ReadWrite {
            self.keep_writable(managed);
        }
        Ok(())
    }
}

fn refused(error: MmuError) -> io::Error {
    match error {
        MmuError::Closed(errno) => error::call("mprotect", errno),
        error => error::mmu(error),
    }
}
