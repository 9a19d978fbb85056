//! Threads of an engine that fault ranges in, for those who do not want to block.
//!
//! They are started at the first use. A child of fork has none of its parent's and starts its own.

use crate::error::FaultError;
use crate::many::Many;
use crate::thread;
use core::task::{Poll, Waker};
use softfault_engine::mm::AddressSpace;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Threads an engine.
const THREADS: usize = 4;

/// What each range has come to.
type Results = Vec<Result<(), FaultError>>;

/// What becomes of ranges that were handed over.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    inner: Mutex<Outstanding>,
}

impl Answer {
    /// The answer, or a waker is noted that is woken once there is one.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Results> {
        let mut inner = lock(&self.inner);
        match inner.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                inner.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

#[derive(Debug, Default)]
struct Outstanding {
    /// The answer, once there is one.
    result: Option<Results>,
    /// Whom to wake then.
    waker: Option<Waker>,
}

/// Ranges that are to be faulted in.
pub(crate) struct Work {
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) ranges: Many,
    pub(crate) until: Option<Instant>,
    /// Whoever wants the answer has it too.
    pub(crate) answer: Arc<Answer>,
}

/// The threads of an engine and what they have to do.
#[derive(Default)]
pub(crate) struct Workers {
    shared: Arc<WorkQueue>,
    started: Mutex<usize>,
}

#[derive(Default)]
struct WorkQueue {
    queue: Mutex<(VecDeque<Work>, bool)>,
    more: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workers {
    /// Hands ranges over. An error if there is no thread for it.
    pub(crate) fn push(&self, work: Work) -> std::io::Result<()> {
        let mut started = lock(&self.started);
        if *started < THREADS {
            let shared = self.shared.clone();
            let serve = move || shared.serve();
            match thread::start(c"softfault-fault", thread::STACK, serve) {
                Ok(_) => *started += 1,
                Err(error) if *started == 0 => return Err(error),
                Err(_) => {}
            }
        }
        drop(started);
        lock(&self.shared.queue).0.push_back(work);
        self.shared.more.notify_one();
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Whoever had a map had the engine: no work is left.
        lock(&self.shared.queue).1 = true;
        self.shared.more.notify_all();
    }
}

impl WorkQueue {
    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(work) = queue.0.pop_front() {
                drop(queue);
                work.run();
                queue = lock(&self.queue);
            } else if queue.1 {
                return;
            } else {
                queue = self
                    .more
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Work {
    fn run(self) {
        let Self {
            space,
            ranges,
            until,
            answer,
        } = self;
        let is_unwanted = || Arc::strong_count(&answer) == 1;
        let results = ranges.serve(&space, until, is_unwanted);
        let waker = {
            let mut inner = lock(&answer.inner);
            inner.result = Some(results);
            inner.waker.take()
        };
        // The map may go as soon as the task runs: nothing of it is touched from here on.
        drop((space, answer));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
