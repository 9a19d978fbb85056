//! A flush as a future.

use super::{MmapMut, ServedBy};
use crate::FaultError;
use crate::engine::{Answer, AnswerDue};
use crate::generation::ProcessGeneration;
use crate::kernel::msync;
use crate::range::offsets;
use core::future::Future;
use core::ops::{Range, RangeBounds};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use std::sync::Arc;

/// A flush as a future. If it is dropped, the result is lost; a flush that has begun still runs to its end.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct FlushFuture<'a> {
    map: &'a MmapMut,
    range: Range<usize>,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    /// Handed over, in some process.
    Waiting(Arc<Answer<io::Result<()>>>, ProcessGeneration),
    Done,
}

impl MmapMut {
    /// As [`flush_range`](Self::flush_range), without blocking: a thread of the engine waits for the
    /// device, or the first poll if the system has no thread for that. The flush covers all writes made before its first poll.
    pub fn flush_future(&self, range: impl RangeBounds<usize>) -> FlushFuture<'_> {
        FlushFuture {
            map: self,
            range: offsets(range, self.len),
            state: State::New,
        }
    }
}

impl FlushFuture<'_> {
    /// Hands the flush to a thread, or returns the result at once if there is nothing to wait for.
    fn hand_over(&mut self) -> Result<(), io::Result<()>> {
        let map = self.map;
        let len = self.range.end.checked_sub(self.range.start);
        let len = len.ok_or_else(|| Err(FaultError::OutOfRange.into()))?;
        let addresses = map.part(self.range.start, len).map_err(Err)?;
        let answer = Arc::new(Answer::default());
        let given = AnswerDue::to(&answer);
        let work: Box<dyn FnOnce() + Send> = match map.served_by() {
            ServedBy::Private(_) | ServedBy::Nobody => return Err(Ok(())),
            ServedBy::File(file) => {
                let (cache, writes) = (file.file().cache().clone(), file.writes().clone());
                Box::new(move || {
                    crate::files::flush(&cache, &writes, addresses);
                    drop((cache, writes));
                    given.give(Ok(()));
                })
            }
            // If the map goes meanwhile, it is a flush of nothing.
            ServedBy::Kernel => Box::new(move || given.give(msync(&addresses, libc::MS_SYNC))),
        };
        map.engine.inner.flushers.get().push(work);
        self.state = State::Waiting(answer, ProcessGeneration::here());
        Ok(())
    }

    /// The result, once the thread has finished.
    fn flush_result(&self, done: io::Result<()>) -> io::Result<()> {
        match self.map.served_by() {
            ServedBy::File(file) => file.check_write_error(),
            _ => done,
        }
    }
}

impl Future for FlushFuture<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The parent's answer is not looked at: its lock may be held for ever here.
        if let State::Waiting(_, generation) = &self.state
            && generation.is_parents()
        {
            let waited = core::mem::replace(&mut self.state, State::New);
            core::mem::forget(waited);
        }
        if let State::New = self.state
            && let Err(done) = self.hand_over()
        {
            self.state = State::Done;
            return Poll::Ready(done);
        }
        let State::Waiting(answer, _) = &self.state else {
            panic!("polled after it was ready");
        };
        let answered = answer.poll(context.waker());
        answered.map(|done| {
            self.state = State::Done;
            self.flush_result(done)
        })
    }
}
