//! Many ranges of one address space, brought in by one thread, with an answer for each.

use crate::access_path::AccessPath;
use crate::error::FaultError;
use crate::range::within;
use core::cell::RefCell;
use core::ops::Range;
use softfault_engine::fault::{FaultInError, FaultInMany, Interrupt};
use softfault_engine::mm::AddressSpace;
use std::time::Instant;

/// Ranges that are told of at a time.
const TOLD: usize = 32;

/// Ranges on their way in.
pub(crate) struct Many {
    ranges: FaultInMany,
    /// By the caller's order: of those that are not within the map, that they are not.
    results: Vec<Result<(), FaultError>>,
}

impl Many {
    /// Ranges of offsets of a map of `len` bytes at `start`; for reads of them.
    pub(crate) fn of_map(start: usize, len: usize, ranges: &[Range<usize>]) -> Self {
        let mut results = Vec::with_capacity(ranges.len());
        let mut inside = Vec::with_capacity(ranges.len());
        for (place, range) in ranges.iter().enumerate() {
            let addresses = within(start, len, range);
            results.push(addresses.as_ref().map(drop).map_err(|&error| error));
            inside.extend(addresses.ok().map(|addresses| (place, addresses)));
        }
        Self {
            ranges: FaultInMany::new(inside, false),
            results,
        }
    }

    /// Ranges of addresses, each by its place in this order; for reads of them.
    pub(crate) fn of_addresses(ranges: &[Range<usize>]) -> Self {
        let inside = ranges.iter().cloned().enumerate().collect();
        Self {
            ranges: FaultInMany::new(inside, false),
            results: vec![Ok(()); ranges.len()],
        }
    }

    /// Brings them in, in the calling thread.
    pub(crate) fn wait(
        self,
        space: &AddressSpace,
        access_path: AccessPath,
        until: Option<Instant>,
    ) -> Vec<Result<(), FaultError>> {
        self.wait_each(space, access_path, until, &mut |_| {})
    }

    /// The same; tells `arrived` of each range that is in, some at a time and with signals as they were, while reads of the others go
    /// on.
    pub(crate) fn wait_each(
        mut self,
        space: &AddressSpace,
        access_path: AccessPath,
        until: Option<Instant>,
        arrived: &mut dyn FnMut(usize),
    ) -> Vec<Result<(), FaultError>> {
        let told = RefCell::new(Vec::with_capacity(TOLD));
        loop {
            let masked = access_path.masked();
            let wanted = || {
                let pending = masked.as_ref().map(|masked| masked.pending());
                told.borrow().len() >= TOLD || pending.is_some_and(|pending| pending.pending())
            };
            let is_done = self.advance(space, until, wanted, &mut |place| {
                told.borrow_mut().push(place);
            });
            drop(masked);
            told.borrow_mut().drain(..).for_each(&mut *arrived);
            if is_done {
                break;
            }
        }
        self.results()
    }

    /// Brings them in, in a thread of ours, as long as somebody wants them.
    pub(crate) fn serve(
        mut self,
        space: &AddressSpace,
        until: Option<Instant>,
        is_unwanted: impl Fn() -> bool,
    ) -> Vec<Result<(), FaultError>> {
        while !self.advance(space, until, &is_unwanted, &mut |_| {}) && !is_unwanted() {}
        self.results()
    }

    /// Goes on, until all ranges are done, or until the deadline; after it, only present pages count. `false`
    /// if interrupted.
    fn advance(
        &mut self,
        space: &AddressSpace,
        until: Option<Instant>,
        interrupt: impl Fn() -> bool,
        arrived: &mut dyn FnMut(usize),
    ) -> bool {
        let interrupt = WithDeadline(until, interrupt);
        loop {
            if self.ranges.run_each(space, &interrupt, arrived) {
                return true;
            }
            if !interrupt.is_over() {
                return false;
            }
            self.ranges.stop_waiting();
        }
    }

    /// The result of each range, in the order of the caller.
    pub(crate) fn results(self) -> Vec<Result<(), FaultError>> {
        let mut results = self.results;
        for (place, why) in self.ranges.failed() {
            results[place] = Err(match why {
                FaultInError::Error(error) => error.into(),
                FaultInError::TimedOut => FaultError::TimedOut,
            });
        }
        results
    }
}

/// A deadline, beside the other interruptions.
struct WithDeadline<F>(Option<Instant>, F);

impl<F> WithDeadline<F> {
    fn is_over(&self) -> bool {
        self.0.is_some_and(|until| Instant::now() >= until)
    }
}

impl<F: Fn() -> bool> Interrupt for WithDeadline<F> {
    fn pending(&self) -> bool {
        self.is_over() || (self.1)()
    }
}
