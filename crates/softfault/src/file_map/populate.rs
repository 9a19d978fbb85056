//! Bringing pages in.

use super::FileMap;
use crate::error::FaultError;
use crate::managed::Managed;
use core::ops::Range;
use softfault_engine::fault;

impl FileMap {
    /// Brings the pages of some addresses in. Nothing keeps them.
    pub(crate) fn populate(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
    ) -> Result<(), FaultError> {
        self.reached.each_attempt(addresses, |rest, interrupt| {
            fault::populate(&managed.space, rest, false, interrupt)
        })
    }

    /// Starts to read the pages of some addresses, as far as spare memory goes; waits for nothing.
    pub(crate) fn prefetch(&self, addresses: Range<usize>) {
        let _masked = self.reached.masked();
        fault::prefetch(&self.cache, addresses);
    }
}
