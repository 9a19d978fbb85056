//! Ranges that a call brings into memory: as a future, or blocking.
//!
//! A future hands its ranges to one of a few threads of the engine. The thread brings them in with
//! many reads in flight, and wakes the task. In a child of fork, a future that waited for a
//! thread of the parent starts again with a thread of the child.

use crate::engine::{Answer, Engine};
use crate::error::FaultError;
use crate::files::Hold;
use crate::generation::ProcessGeneration;
use crate::many::Many;
use crate::reached::AccessPath;
use core::future::Future;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

/// The result for each range: success, or the error.
type Answers = Vec<Result<(), FaultError>>;

/// A map, as the futures see it.
pub(crate) trait Awaited: Sync + RefUnwindSafe {
    /// Address and length of the map; an error if this process does not have it any more.
    fn place(&self) -> Result<(usize, usize), FaultError>;

    fn engine(&self) -> &Engine;

    /// Keeps the map served by the engine while a caller waits; `None` if the kernel serves the map.
    fn served(&self) -> Option<KeptServed>;

    /// Tells the kernel which range of a map that it serves will be needed.
    fn will_need(&self, range: Range<usize>);

    /// Brings in addresses of a map that the kernel served a moment ago; the kernel or the engine may serve them now.
    fn bring_in(&self, range: Range<usize>) -> Result<(), FaultError>;
}

/// A map that the engine serves: for ever, or until this is dropped.
pub(crate) type KeptServed = Option<Hold>;

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
    /// Held while the ranges are being read.
    kept: KeptServed,
    /// Keeps the map alive until the result is taken.
    map: &'a dyn Awaited,
}

#[derive(Debug)]
enum FaultInState {
    /// Not yet handed over.
    New,
    /// Handed over, in some process.
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
            kept: None,
            map,
        }
    }

    /// Sets a deadline: no read starts after it, and no wait goes on. Ranges that are in memory by then succeed;
    /// the others fail with [`FaultError::TimedOut`]. Reads under way are abandoned, and the wait for them ends
    /// within about 10 ms. One kind of read is finished first: a read that the waiting thread does itself,
    /// through the kernel's page cache ([`Reads`](crate::Reads)), or of a file without asynchronous reads
    /// in the kernel.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.until = Some(deadline);
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
        match self.begin() {
            Ok((many, map)) => {
                let managed = map.engine().inner.managed().expect("a map that is served");
                many.wait_each(&managed.space, AccessPath::ByLoads, self.until, arrived)
            }
            Err(answer) => self.wait_for_kernel(answer, arrived),
        }
    }

    /// Waits for the ranges of a map that the kernel serves; the kernel already reads them.
    fn wait_for_kernel(&self, mut answers: Answers, arrived: &mut dyn FnMut(usize)) -> Answers {
        let Ok((start, _)) = self.map.place() else {
            return answers;
        };
        let is_over = || self.until.is_some_and(|until| Instant::now() >= until);
        for (place, (range, answer)) in self.ranges.iter().zip(&mut answers).enumerate() {
            if answer.is_ok() && !range.is_empty() {
                *answer = match is_over() {
                    true => Err(FaultError::TimedOut),
                    false => self.map.bring_in(start + range.start..start + range.end),
                };
            }
            if answer.is_ok() {
                arrived(place);
            }
        }
        answers
    }

    /// The ranges to bring in; or the result, if there are none.
    fn begin(&mut self) -> Result<(Many, &'a dyn Awaited), Answers> {
        let (map, ranges) = (self.map, &self.ranges);
        let (start, len) = map
            .place()
            .map_err(|error| vec![Err(error); ranges.len()])?;
        let many = Many::of_map(start, len, ranges);
        if let Some(kept) = map.served() {
            self.kept = kept;
            return Ok((many, map));
        }
        let results = many.results();
        for (range, result) in ranges.iter().zip(&results) {
            if result.is_ok() && !range.is_empty() {
                map.will_need(start + range.start..start + range.end);
            }
        }
        Err(results)
    }

    /// Hands the ranges to a thread of the engine; or returns the result, if it is ready at once.
    fn hand_over(&mut self) -> Result<(), Answers> {
        let (many, map) = self.begin()?;
        let inner = &map.engine().inner;
        let managed = inner.managed().expect("a map that is served");
        let answer = Arc::new(Answer::default());
        let (space, until, given) = (managed.space.clone(), self.until, answer.clone());
        let work = move || {
            let results = many.serve(&space, until, || given.is_unwanted());
            drop(space);
            given.give(results);
        };
        if inner.workers.get().push(Box::new(work)).is_err() {
            return Err(vec![Err(FaultError::NoMemory); self.ranges.len()]);
        }
        self.state = FaultInState::Waiting(answer, ProcessGeneration::here());
        Ok(())
    }
}

impl Future for FaultInMany<'_> {
    type Output = Vec<Result<(), FaultError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The parent's answer must not be used: in this process its lock may be held for ever.
        if let FaultInState::Waiting(_, generation) = &self.state
            && generation.is_parents()
        {
            self.state = FaultInState::New;
        }
        if let FaultInState::New = self.state
            && let Err(answer) = self.hand_over()
        {
            self.state = FaultInState::Done;
            return Poll::Ready(answer);
        }
        let FaultInState::Waiting(answer, _) = &self.state else {
            panic!("polled after it was ready");
        };
        let answered = answer.poll(context.waker());
        if answered.is_ready() {
            self.state = FaultInState::Done;
            self.kept = None;
        }
        answered
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
