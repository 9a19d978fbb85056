//! The rings of an engine, made when faults are about to read a file.
//!
//! A process that has a queue of `io_submit` waits for the kernel when it ends: `exit_aio` of Linux's fs/aio.c
//! lets an RCU grace period pass, which took 37 ms where a process without one ended in 1. A program whose files the
//! kernel serves needs none.

use super::{QueueKind, Rings, Unavailable, apart};
use softfault_engine::store::{Complete, ReadsUnderWay};
use std::sync::{Arc, OnceLock};

/// How rings of a kind are made.
pub(crate) type Make = fn(QueueKind) -> Result<Rings, Unavailable>;

/// Rings that may not be there yet.
#[derive(Debug)]
pub(crate) struct RingsOnDemand {
    /// Immutable. The kinds to try, in order.
    kinds: &'static [QueueKind],
    /// Immutable.
    make: Make,
    /// `None` inside: the kernel has none for us.
    made: OnceLock<Option<Arc<Rings>>>,
}

impl ReadsUnderWay for RingsOnDemand {
    fn poll(&self, complete: &dyn Complete) {
        if let Some(rings) = self.get() {
            rings.poll(complete);
        }
    }
}

impl RingsOnDemand {
    pub(crate) fn new(kinds: &'static [QueueKind], make: Make) -> Arc<Self> {
        Arc::new(Self {
            kinds,
            make,
            made: OnceLock::new(),
        })
    }

    /// Those that are there.
    pub(crate) fn get(&self) -> Option<&Arc<Rings>> {
        self.made.get()?.as_ref()
    }

    /// Those that are there from now on. Not for the fault handler.
    pub(crate) fn make(&self) -> Option<&Arc<Rings>> {
        let make = || self.kinds.iter().find_map(|&kind| (self.make)(kind).ok());
        let made = self.made.get_or_init(|| make().map(Arc::new));
        if made.is_some() {
            apart::make(self.kinds);
        }
        made.as_ref()
    }
}
