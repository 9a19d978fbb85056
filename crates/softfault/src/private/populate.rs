//! Bringing pages in, with errors as values.

use super::{Private, Reached};
use crate::managed::Managed;
use crate::{FaultError, signal};
use core::ops::Range;
use softfault_engine::fault::{self, Interrupt, NeverInterrupted, Populated};

impl Private {
    /// Brings the pages of some addresses in, as reads or writes of each would.
    pub(crate) fn populate(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        write: bool,
    ) -> Result<(), FaultError> {
        let space = &managed.space;
        self.each_attempt(addresses, |rest, interrupt| {
            fault::populate(space, rest, write, interrupt)
        })
    }

    /// Goes on with `attempt` until it is through the range.
    pub(super) fn each_attempt(
        &self,
        mut rest: Range<usize>,
        mut attempt: impl FnMut(Range<usize>, &dyn Interrupt) -> Populated,
    ) -> Result<(), FaultError> {
        let mut masked = self.masked();
        loop {
            let done = match &masked {
                Some(masked) => attempt(rest.clone(), &masked.pending()),
                None => attempt(rest.clone(), &NeverInterrupted),
            };
            match done {
                Populated::Done => return Ok(()),
                Populated::Interrupted(at) => rest.start = at,
                Populated::Failed(_, error) => return Err(error.into()),
            }
            masked = masked.map(signal::Masked::deliver_pending);
            debug_assert!(
                self.reached == Reached::ByLoads,
                "calls are not interrupted"
            );
        }
    }
}
