//! Bringing pages in, with errors as values.

use super::Private;
use crate::FaultError;
use crate::managed::Managed;
use core::ops::Range;
use softfault_engine::fault;

impl Private {
    /// Brings the pages of some addresses in, as reads or writes of each would.
    pub(crate) fn populate(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        write: bool,
    ) -> Result<(), FaultError> {
        let space = &managed.space;
        self.access_path.each_attempt(addresses, |rest, interrupt| {
            fault::populate(space, rest, write, interrupt)
        })
    }
}
