//! Threads of an engine that fault ranges in, for those who do not want to block.
//!
//! They are started at the first use. A child of fork has none of its parent's and starts its own.

use crate::error::FaultError;
use crate::signal;
use core::ops::Range;
use core::task::{Poll, Waker};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine::mm::AddressSpace;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads an engine.
const THREADS: usize = 4;

/// What becomes of a range that was handed over.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    inner: Mutex<Outstanding>,
}

impl Answer {
    /// The answer, or a waker is noted that is woken once there is one.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<(), FaultError>> {
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
    result: Option<Result<(), FaultError>>,
    /// Whom to wake then.
    waker: Option<Waker>,
}

/// A range that is to be faulted in.
pub(crate) struct Work {
    /// What to read ahead of, of a file.
    pub(crate) cache: Option<Arc<PageCache>>,
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) addresses: Range<usize>,
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
    /// Hands a range over. An error if there is no thread for it.
    pub(crate) fn push(&self, work: Work) -> std::io::Result<()> {
        let mut started = lock(&self.started);
        if *started < THREADS {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("softfault-fault-in".into());
            // All signals stay with the threads of the program.
            let masked = signal::masked();
            let spawned = thread.spawn(move || shared.serve());
            drop(masked);
            match spawned {
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
        let result = self.touch_all();
        let waker = {
            let mut inner = lock(&self.answer.inner);
            inner.result = Some(result);
            inner.waker.take()
        };
        // The map may go as soon as the task runs: nothing of it is touched
        // from here on but the reference to the cache, which its owner counts.
        drop(self);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn touch_all(&self) -> Result<(), FaultError> {
        let mut addr = self.addresses.start & !(PAGE_SIZE - 1);
        let mut ahead = addr;
        while addr < self.addresses.end {
            if let Some(cache) = &self.cache
                && addr >= ahead
            {
                ahead = fault::prefetch(cache, addr..self.addresses.end);
                ahead = ahead.max(addr + PAGE_SIZE);
            }
            let flags = FaultFlags::default();
            match fault::handle(&self.space, addr, flags, &NeverInterrupted) {
                Outcome::Mapped => addr += PAGE_SIZE,
                Outcome::Interrupted => {}
                Outcome::Error(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
