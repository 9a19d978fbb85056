//! Ranges that a call brings into memory: as a future, or blocking.
//!
//! A future hands its ranges to one of a few threads of the engine. The thread brings them in with
//! many reads in flight, or has the kernel bring them in if it serves the map, and wakes the task. Where the system has no thread for that,
//! the poll does it. In a child of fork, a future that waited for a
//! thread of the parent starts again with a thread of the child.

mod parts;

use crate::access_path::AccessPath;
use crate::engine::{Answer, AnswerDue, Engine};
use crate::error::FaultError;
use crate::files::Hold;
use crate::generation::ProcessGeneration;
use crate::many::Many;
use core::future::Future;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll};
use parts::{Answers, Parts};
use softfault_engine::fault;
use softfault_engine::mm::AddressSpace;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

/// A map, as the futures see it.
pub(crate) trait Awaited: Sync + RefUnwindSafe {
    /// Address and length of the map; an error if this process does not have it any more.
    fn place(&self) -> Result<(usize, usize), FaultError>;

    fn engine(&self) -> &Engine;

    /// The server of the map, as long as the result is kept.
    fn served(&self) -> KeptServed;

    /// The error of addresses that the kernel, which serves the map, cannot bring in.
    fn kernels_error(&self, _addresses: &Range<usize>, error: FaultError) -> FaultError {
        error
    }
}

/// The server of a map: for ever, or until this is dropped.
pub(crate) struct KeptServed {
    pub(crate) by_kernel: bool,
    _hold: Option<Hold>,
}

impl KeptServed {
    /// A window's server, which changes at times.
    pub(crate) fn window(hold: Hold) -> Self {
        Self {
            by_kernel: hold.is_kernels(),
            _hold: Some(hold),
        }
    }

    /// A server that never changes.
    pub(crate) fn always(by_kernel: bool) -> Self {
        Self {
            by_kernel,
            _hold: None,
        }
    }
}

/// A future that brings a range into memory. If it is dropped, the result is lost; reads
/// that have begun still run to their end.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct FaultIn<'a>(FaultInMany<'a>);

/// A future that brings ranges into memory: await it, or block with [`wait`](Self::wait). The output has a result
/// for each range: success, or the error of its first page that could not be read. If the future is dropped, the
/// result is lost; reads that have begun still run to their end.
#[must_use = "a future does nothing until it is polled"]
pub struct FaultInMany<'a> {
    ranges: Vec<Range<usize>>,
    until: Option<Instant>,
    state: FaultInState,
    /// `None` before they are looked at, and when they are done.
    parts: Option<Parts>,
    /// The kernel serves those that are under way.
    by_kernel: bool,
    /// The kernel was told all of them.
    told: bool,
    /// Keeps the map alive until the result is taken.
    map: &'a dyn Awaited,
}

#[derive(Debug)]
enum FaultInState {
    /// Nothing is handed over.
    New,
    /// Parts are, in some process.
    Waiting(Arc<Answer<Answers>>, ProcessGeneration),
    Done,
}

impl<'a> FaultIn<'a> {
    pub(crate) fn new(map: &'a dyn Awaited, range: Range<usize>) -> Self {
        Self(FaultInMany::new(map, &[range]))
    }
}

impl<'a> FaultInMany<'a> {
    pub(crate) fn new(map: &'a dyn Awaited, ranges: &[Range<usize>]) -> Self {
        Self {
            ranges: ranges.to_vec(),
            until: None,
            state: FaultInState::New,
            parts: None,
            by_kernel: false,
            told: false,
            map,
        }
    }

    /// Sets a deadline: no read starts after it, and no wait goes on. Ranges that are in memory by then succeed;
    /// the others fail with [`FaultError::TimedOut`]. Reads under way are abandoned, and the wait for them ends
    /// within about 10 ms. One kind of read is finished first: a read that the waiting thread does itself,
    /// through the kernel's page cache ([`Reads`](crate::Reads)), of a file without asynchronous reads
    /// in the kernel, or of 2 MiB at most of a map that the kernel serves. Pages of such a map that the kernel does not tell of, because the
    /// process does not own the file and may not write to it, count as in memory then.
    pub fn until(self, deadline: Instant) -> Self {
        self.with_deadline(Some(deadline))
    }

    pub(crate) fn with_deadline(mut self, until: Option<Instant>) -> Self {
        self.until = until;
        self
    }

    /// Blocks the calling thread until the result is ready. Signals are delivered meanwhile.
    pub fn wait(self) -> Vec<Result<(), FaultError>> {
        self.wait_each(&mut |_| {})
    }

    /// As [`wait`](Self::wait). `arrived` is told the number of each range that is in memory, in the order of addresses where the engine
    /// serves them, while the others are being read. No lock is held then.
    pub(crate) fn wait_each(
        mut self,
        arrived: &mut dyn FnMut(usize),
    ) -> Vec<Result<(), FaultError>> {
        if let Err(answers) = self.begin() {
            return answers;
        }
        while let Some((given, kept)) = self.take() {
            if self.by_kernel {
                parts::will_need(&self.untold());
                let results = parts::bring_in(&given, self.until);
                drop(kept);
                self.note(results, arrived);
                continue;
            }
            let managed = self.map.engine().inner.managed();
            let space = &managed.expect("a map that is served").space;
            let numbers = self.parts.as_ref().map_or_else(Vec::new, Parts::numbers);
            let mut arrived = |place: usize| arrived(numbers[place]);
            let many = Many::of_addresses(&given);
            let results = many.wait_each(space, AccessPath::ByLoads, self.until, &mut arrived);
            read_ahead_of(space, &given, &results);
            drop(kept);
            self.note(results, &mut |_| {});
        }
        self.finish()
    }

    /// Tells the kernel the ranges of a map that it serves, and waits for nothing.
    pub(crate) fn will_need(&mut self) {
        if self.begin().is_ok() {
            parts::will_need(&self.untold());
        }
    }

    /// In a child of fork: forgets what a thread of the parent was given. Its answer must not be used: in this process its lock may be held
    /// for ever; and the map may not be this process's.
    fn leave_parents(&mut self) {
        if let FaultInState::Waiting(_, generation) = &self.state
            && generation.is_parents()
        {
            self.state = FaultInState::New;
            self.parts = None;
        }
    }

    /// Looks at the ranges; or returns the result, if this process does not have the map any more.
    fn begin(&mut self) -> Result<(), Answers> {
        self.leave_parents();
        if self.parts.is_none() {
            let place = self.map.place();
            let place = place.map_err(|error| vec![Err(error); self.ranges.len()])?;
            self.parts = Some(Parts::new(place, &self.ranges));
        }
        Ok(())
    }

    /// Takes the addresses that are to be under way next, and the server of the map, which is to be kept while they are being read;
    /// `None` if all are done.
    fn take(&mut self) -> Option<(Vec<Range<usize>>, KeptServed)> {
        let parts = self.parts.as_mut().filter(|parts| !parts.are_done())?;
        let kept = self.map.served();
        self.by_kernel = kept.by_kernel;
        Some((parts.take(kept.by_kernel), kept))
    }

    /// The addresses that the kernel is to be told: all, once, and none after the deadline.
    fn untold(&mut self) -> Vec<Range<usize>> {
        let told = core::mem::replace(&mut self.told, true) || parts::is_over(self.until);
        let parts = self.parts.as_ref().filter(|_| !told);
        parts.map_or_else(Vec::new, Parts::unfinished)
    }

    /// Notes the results of those that were under way.
    fn note(&mut self, mut results: Answers, arrived: &mut dyn FnMut(usize)) {
        let parts = self.parts.as_mut().expect("some were under way");
        if self.by_kernel {
            for (addresses, result) in parts.under_way().zip(&mut results) {
                if let Err(error @ FaultError::Io(_)) = *result {
                    *result = Err(self.map.kernels_error(addresses, error));
                }
            }
        }
        parts.note(results, arrived);
    }

    fn finish(&mut self) -> Answers {
        let parts = self.parts.take();
        parts.expect("they are done").into_answers()
    }

    /// Hands parts over to a thread of the engine; or returns the result, if all are done.
    fn hand_over(&mut self) -> Result<(), Answers> {
        self.begin()?;
        let Some((given, kept)) = self.take() else {
            return Err(self.finish());
        };
        let answer = Arc::new(Answer::default());
        let (until, wanted) = (self.until, AnswerDue::to(&answer));
        let inner = &self.map.engine().inner;
        // Nobody may poll for a long time: the window is kept until the pages are read, and no longer.
        if self.by_kernel {
            let untold = self.untold();
            // The map may be gone by then: of other memory at its addresses it reads a piece in.
            inner.kernel_readers.get().push(Box::new(move || {
                if !wanted.is_unwanted() {
                    parts::will_need(&untold);
                    let results = parts::bring_in(&given, until);
                    drop(kept);
                    wanted.give(results);
                }
            }));
        } else {
            let space = inner.managed().expect("a map that is served").space.clone();
            let many = Many::of_addresses(&given);
            inner.readers.get().push(Box::new(move || {
                let results = many.serve(&space, until, || wanted.is_unwanted());
                read_ahead_of(&space, &given, &results);
                drop((space, kept));
                wanted.give(results);
            }));
        }
        self.state = FaultInState::Waiting(answer, ProcessGeneration::here());
        Ok(())
    }
}

/// Calls for one range each that go through a file in order are read ahead of; many ranges are all that is wanted.
fn read_ahead_of(space: &AddressSpace, given: &[Range<usize>], results: &[Result<(), FaultError>]) {
    if let ([range], [Ok(())]) = (given, results) {
        let _masked = AccessPath::ByLoads.masked();
        fault::note_call(space, range);
    }
}

impl Future for FaultInMany<'_> {
    type Output = Vec<Result<(), FaultError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.leave_parents();
        loop {
            match &self.state {
                FaultInState::New => {
                    if let Err(answers) = self.hand_over() {
                        self.state = FaultInState::Done;
                        return Poll::Ready(answers);
                    }
                }
                FaultInState::Waiting(answer, _) => {
                    let Poll::Ready(results) = answer.poll(context.waker()) else {
                        return Poll::Pending;
                    };
                    self.note(results, &mut |_| {});
                    self.state = FaultInState::New;
                }
                FaultInState::Done => panic!("polled after it was ready"),
            }
        }
    }
}

impl Future for FaultIn<'_> {
    type Output = Result<(), FaultError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let many = Pin::new(&mut self.0);
        many.poll(context).map(|answer| answer[0])
    }
}

impl core::fmt::Debug for FaultInMany<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FaultInMany")
            .field("ranges", &self.ranges)
            .field("until", &self.until)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
