//! How accesses reach a map's memory, and therefore how a thread waits for a page.

use crate::error::FaultError;
use crate::signal::{self, Masked};
use core::ops::Range;
use softfault_engine::fault::{Interrupt, NeverInterrupted, Populated};

/// How accesses reach the memory, and so the possible interruptions of a waiting thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessPath {
    /// By plain loads and stores: locks are taken that a fault in a signal handler may
    /// need, so signals are masked, and delivered between two attempts.
    ByLoads,
    /// By calls: nothing here is for signal handlers.
    ByCalls,
}

impl AccessPath {
    /// Masks signals, if a handler may need the locks that are about to be taken.
    pub(crate) fn masked(self) -> Option<Masked> {
        (self == Self::ByLoads).then(signal::masked)
    }

    /// Goes on with `attempt` until it is through the range.
    pub(crate) fn each_attempt(
        self,
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
            masked = masked.map(Masked::deliver_pending);
            debug_assert!(self == Self::ByLoads, "calls are not interrupted");
        }
    }
}
