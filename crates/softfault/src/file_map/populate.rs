//! Bringing pages in.

use super::{FileMap, populate_by_kernel};
use crate::advice::Advice;
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
        let hold = self.hold();
        if hold.is_kernels() {
            return populate_by_kernel(&addresses);
        }
        self.reached.each_attempt(addresses, |rest, interrupt| {
            fault::populate(&managed.space, rest, false, interrupt)
        })
    }

    /// Starts to read the pages of some addresses, as far as spare memory goes; waits for nothing.
    pub(crate) fn prefetch(&self, addresses: Range<usize>) {
        let _masked = self.reached.masked();
        let hold = self.served.hold();
        if hold.is_kernels() {
            // It is advice.
            let _ = Advice::WillNeed.to_kernel(&addresses);
            return;
        }
        fault::prefetch(&self.cache, addresses);
    }
}
