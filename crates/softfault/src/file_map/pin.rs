//! Pages that stay in memory, and may be handed to system calls.

use super::FileMap;
use crate::error::FaultError;
use crate::managed::Managed;
use core::ops::Range;
use softfault_engine::fault::{self, Pin, Populated};

impl FileMap {
    /// Pins the pages of some addresses; how many were charged to the limit on pins.
    pub(crate) fn pin(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
    ) -> Result<u64, FaultError> {
        let pages = self.cache.admit_pin(&addresses);
        let pages = pages.ok_or(FaultError::NoMemory)?;
        match self.pin_uncounted(managed, addresses) {
            Ok(()) => Ok(pages),
            Err(error) => {
                self.cache.dismiss_pin(pages);
                Err(error)
            }
        }
    }

    /// The same, charged to no limit: maps the pages and takes references to their folios.
    pub(crate) fn pin_uncounted(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
    ) -> Result<(), FaultError> {
        self.reached
            .each_attempt(addresses.clone(), |rest, interrupt| {
                let from = rest.start;
                let all = addresses.clone();
                match fault::pin(&managed.space, &self.cache, all, from, interrupt) {
                    Pin::Done => Populated::Done,
                    Pin::Interrupted(at) => Populated::Interrupted(at),
                    Pin::Failed(error) => Populated::Failed(from, error),
                }
            })
    }

    /// Lets pages go that were pinned, of which `pages` were charged.
    pub(crate) fn unpin(&self, addresses: Range<usize>, pages: u64) {
        let _masked = self.reached.masked();
        fault::unpin(&self.cache, addresses);
        self.cache.dismiss_pin(pages);
    }
}
