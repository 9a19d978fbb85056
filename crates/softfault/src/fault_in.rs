//! Ranges that are brought in at a call: awaited, or waited for.
//!
//! A future hands its ranges to one of a few threads of the engine, which brings them in with
//! many reads in flight, and wakes the task. In a child of fork a future that waited for the
//! parent's asks the child's own.

use crate::engine::{Answer, Engine};
use crate::error::FaultError;
use crate::files::Hold;
use crate::generation::ProcessGeneration;
use crate::many::Many;
use crate::reached::Reached;
use core::future::Future;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

/// For each range, that it is there, or why not.
type Answers = Vec<Result<(), FaultError>>;

/// A map, for those who wait for its pages.
pub(crate) trait Awaited: Sync + RefUnwindSafe {
    /// Where it is, and its bytes; an error if this process has it no more.
    fn place(&self) -> Result<(usize, usize), FaultError>;

    fn engine(&self) -> &Engine;

    /// What keeps it served by the engine as long as somebody waits; `None` if the kernel serves it.
    fn served(&self) -> Option<KeptServed>;

    /// Tells the kernel, of a map that it serves, what will be wanted.
    fn will_need(&self, range: Range<usize>);

    /// Brings addresses of a map in that the kernel served a moment ago, whoever serves them now.
    fn bring_in(&self, range: Range<usize>) -> Result<(), FaultError>;
}

/// A map that the engine serves: for ever, or until this is dropped.
pub(crate) type KeptServed = Option<Hold>;

/// A range on its way into memory. Dropping it lets go of the answer; the
/// reads that were started end by themselves.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct FaultIn<'a>(FaultInMany<'a>);

/// Ranges on their way into memory: await it, or [`wait`](Self::wait). The answer has, for each
/// range, that it is there, or why its first page that is not cannot be had. Dropping it lets go
/// of the answer; the reads that were started end by themselves.
#[must_use = "a future does nothing until it is polled"]
pub struct FaultInMany<'a> {
    ranges: Vec<Range<usize>>,
    until: Option<Instant>,
    state: FaultInState,
    /// As long as it is on the way.
    kept: KeptServed,
    /// The map stays as long as somebody may want the answer.
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

    /// Nothing is read or waited for after `deadline`: ranges that are in memory then are well,
    /// the others are [`FaultError::TimedOut`]. Reads under way are left, and their waiting ends
    /// within some 10 ms. But a read that has to be finished by the thread that waits ends first:
    /// one through the kernel's page cache ([`Reads`](crate::Reads)), or of a file for which the
    /// kernel has no asynchronous reads.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.until = Some(deadline);
        self
    }

    /// Blocks the calling thread until the answer is there. Signals are served meanwhile.
    pub fn wait(mut self) -> Vec<Result<(), FaultError>> {
        match self.begin() {
            Ok((many, map)) => {
                let managed = map.engine().inner.managed().expect("a map that is served");
                many.wait(&managed.space, Reached::ByLoads, self.until)
            }
            Err(answer) => self.wait_for_kernel(answer),
        }
    }

    /// Waits for the ranges of a map that the kernel serves, which has been told what will be wanted.
    fn wait_for_kernel(&self, mut answers: Answers) -> Answers {
        let Ok((start, _)) = self.map.place() else {
            return answers;
        };
        let is_over = || self.until.is_some_and(|until| Instant::now() >= until);
        let asked = self.ranges.iter().zip(&mut answers);
        for (range, answer) in asked.filter(|(range, answer)| answer.is_ok() && !range.is_empty()) {
            *answer = match is_over() {
                true => Err(FaultError::TimedOut),
                false => self.map.bring_in(start + range.start..start + range.end),
            };
        }
        answers
    }

    /// The ranges as they are to be brought in; or the answer, where nothing is.
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

    /// Hands the ranges over to a thread of the engine; or the answer, if there is one at once.
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
        // The parent's answer is not looked at: its lock may be held for ever here.
        if let FaultInState::Waiting(_, born) = &self.state
            && born.is_parents()
        {
            self.state = FaultInState::New;
            // The parent's lock is.
            core::mem::forget(self.kept.take());
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
