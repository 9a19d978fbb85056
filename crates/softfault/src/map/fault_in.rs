//! Faults that can be awaited.
//!
//! A future hands its range to a few threads of the engine, which fault it in
//! and wake the task. In a child of fork a future that waited for the parent's asks the child's own.

use super::Mmap;
use crate::engine::{Answer, Work};
use crate::error::FaultError;
use crate::generation::ProcessGeneration;
use core::future::Future;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

/// A range on its way into memory. Dropping it lets go of the answer; the
/// reads that were started end by themselves.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct FaultIn<'a> {
    state: FaultInState,
    /// The map stays as long as somebody may want the answer.
    map: &'a Mmap,
}

#[derive(Debug)]
enum FaultInState {
    /// Not yet handed over.
    New(Range<usize>),
    /// Handed over, in some process.
    Waiting(Range<usize>, Arc<Answer>, ProcessGeneration),
    Done,
}

impl<'a> FaultIn<'a> {
    pub(super) fn new(map: &'a Mmap, range: Range<usize>) -> Self {
        Self {
            state: FaultInState::New(range),
            map,
        }
    }
}

impl Future for FaultIn<'_> {
    type Output = Result<(), FaultError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let map = self.map;
        // The parent's answer is not looked at: its lock may be held for ever here.
        if let FaultInState::Waiting(range, _, born) = &self.state
            && born.is_parents()
        {
            self.state = FaultInState::New(range.clone());
        }
        if let FaultInState::New(range) = &self.state {
            let range = range.clone();
            let addresses = match map.addresses(range.clone()) {
                Ok(addresses) => addresses,
                Err(error) => {
                    self.state = FaultInState::Done;
                    return Poll::Ready(Err(error));
                }
            };
            let (true, Some(managed)) = (map.is_managed(), map.engine().inner.managed()) else {
                self.state = FaultInState::Done;
                return Poll::Ready(Ok(()));
            };
            let answer = Arc::new(Answer::default());
            let work = Work {
                cache: map.file().map(|file| file.cache().clone()),
                space: managed.space.clone(),
                addresses,
                answer: answer.clone(),
            };
            let inner = &map.engine().inner;
            if inner.fault_in.get().push(work).is_err() {
                self.state = FaultInState::Done;
                return Poll::Ready(Err(FaultError::NoMemory));
            }
            self.state = FaultInState::Waiting(range, answer, ProcessGeneration::here());
        }
        let FaultInState::Waiting(_, answer, _) = &self.state else {
            panic!("polled after it was ready");
        };
        let answered = answer.poll(context.waker());
        if answered.is_ready() {
            self.state = FaultInState::Done;
        }
        answered
    }
}
