//! Whether the map may be written to.

use super::Private;
use crate::error;
use crate::managed::Managed;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::MmuError;
use std::io;

impl Private {
    /// Lets the map be read only, or be written to as well. A fault goes by the
    /// space's protection, a touch of a present page by the window's.
    pub(crate) fn protect(&mut self, managed: &Managed, protection: Protection) -> io::Result<()> {
        {
            let _masked = self.access_path.masked();
            self.anon.restrict(protection).map_err(refused)?;
            let changed = managed.space.mprotect(self.window(), protection);
            if changed.is_err() {
                let _ = self.anon.restrict(self.protection);
            }
            changed.map_err(error::mm)?;
        }
        self.protection = protection;
        self.parts_differ.store(false, Relaxed);
        if protection == Protection::ReadWrite {
            self.keep_writable(managed, &self.window());
        }
        Ok(())
    }

    /// The same of some of its pages, while other threads use the map. One thread at a time does this.
    pub(crate) fn protect_part(
        &self,
        managed: &Managed,
        pages: &Range<usize>,
        protection: Protection,
    ) -> io::Result<()> {
        self.parts_differ.store(true, Relaxed);
        let masked = self.access_path.masked();
        let changed = match self.anon.restrict_part(pages, protection) {
            Ok(()) => {
                let changed = managed.space.mprotect(pages.clone(), protection);
                changed.map_err(error::mm)
            }
            Err(error) => Err(refused(error)),
        };
        if changed.is_err() {
            // The space may have changed a part: the window does as it says.
            for (part, protection) in self.protections(managed, pages) {
                let _ = self.anon.restrict_part(&part, protection);
            }
        }
        drop(masked);
        if changed.is_ok() && protection == Protection::ReadWrite {
            self.keep_writable(managed, pages);
        }
        changed
    }

    /// The mappings of some addresses, and their protection. Signals are masked, if need be.
    pub(super) fn protections(
        &self,
        managed: &Managed,
        addresses: &Range<usize>,
    ) -> Vec<(Range<usize>, Protection)> {
        let mut parts = Vec::new();
        let space = &managed.space;
        space.each_protection(addresses, |part, protection| parts.push((part, protection)));
        parts
    }
}

pub(super) fn refused(error: MmuError) -> io::Error {
    match error {
        MmuError::Closed(errno) => error::call("mprotect", errno),
        error => error::mmu(error),
    }
}
