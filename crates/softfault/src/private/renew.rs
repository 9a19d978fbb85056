//! Pages that are zeros again, as after `mmap(2)` with `MAP_FIXED` over memory of zeros.

use super::Private;
use super::protect::refused;
use crate::error;
use crate::managed::Managed;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::mm::{MmError, Protection};
use std::io;

impl Private {
    /// True if its untouched pages are zeros.
    pub(crate) fn is_zero_filled(&self) -> bool {
        self.file.is_none()
    }

    /// Lets some of its pages be zeros, which may be used for this, whether they were unmapped or not. One thread at a time does
    /// this. After an error some may be zeros already.
    ///
    /// # Safety
    /// Nothing relies on the bytes, and none of the pages is kept.
    pub(crate) unsafe fn renew(
        &self,
        managed: &Managed,
        pages: &Range<usize>,
        protection: Protection,
    ) -> io::Result<()> {
        if !self.is_zero_filled() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.parts_differ.store(true, Relaxed);
        let _masked = self.access_path.masked();
        let mapped = self.protections(managed, pages);
        for (part, _) in &mapped {
            managed
                .space
                .dont_need(part.clone())
                .map_err(not_given_up)?;
        }
        let allowed = self.anon.restrict_part(pages, protection);
        allowed.map_err(refused)?;
        let mut at = pages.start;
        for (part, before) in mapped {
            if at < part.start {
                self.enter_as(managed, at..part.start, protection)?;
            }
            at = part.end;
            if before != protection {
                let changed = managed.space.mprotect(part, protection);
                changed.map_err(error::mm)?;
            }
        }
        if at < pages.end {
            self.enter_as(managed, at..pages.end, protection)?;
        }
        Ok(())
    }
}

fn not_given_up(error: MmError) -> io::Error {
    match error {
        // Another call has come to use it.
        MmError::Locked => io::ErrorKind::ResourceBusy.into(),
        error => error::mm(error),
    }
}
