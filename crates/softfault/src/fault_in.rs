//! Faults that can be awaited.
//!
//! A future hands its range to a few threads of the engine, which fault it in
//! and wake the task. They are started at the first use. A child of fork has none of its
//! parent's and starts its own: a future that waited for the parent's asks them.

use crate::generation::ProcessGeneration;
use crate::{FaultError, Mmap, signal};
use core::future::Future;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine::mm::AddressSpace;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads an engine.
const THREADS: usize = 4;

/// A range on its way into memory. Dropping it lets go of the answer; the
/// reads that were started end by themselves.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct FaultIn<'a> {
    state: State,
    /// The map stays as long as somebody may want the answer.
    map: &'a Mmap,
}

#[derive(Debug)]
enum State {
    /// Not yet handed over.
    New(Range<usize>),
    /// Handed over, in some process.
    Waiting(Range<usize>, Arc<Answer>, ProcessGeneration),
    Done,
}

#[derive(Debug, Default)]
struct Answer {
    inner: Mutex<Outstanding>,
}

#[derive(Debug, Default)]
struct Outstanding {
    /// The answer, once there is one.
    result: Option<Result<(), FaultError>>,
    /// Whom to wake then.
    waker: Option<Waker>,
}

impl<'a> FaultIn<'a> {
    pub(crate) fn new(map: &'a Mmap, range: Range<usize>) -> Self {
        Self {
            state: State::New(range),
            map,
        }
    }
}

impl Future for FaultIn<'_> {
    type Output = Result<(), FaultError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let map = self.map;
        // The parent's answer is not looked at: its lock may be held for ever here.
        if let State::Waiting(range, _, born) = &self.state
            && born.is_parents()
        {
            self.state = State::New(range.clone());
        }
        if let State::New(range) = &self.state {
            let range = range.clone();
            let addresses = match map.addresses(range.clone()) {
                Ok(addresses) => addresses,
                Err(error) => {
                    self.state = State::Done;
                    return Poll::Ready(Err(error));
                }
            };
            let (true, Some(managed)) = (map.is_managed(), map.engine().inner.managed()) else {
                self.state = State::Done;
                return Poll::Ready(Ok(()));
            };
            let answer = Arc::new(Answer::default());
            let work = Work {
                cache: map.cache().cloned(),
                space: managed.space.clone(),
                addresses,
                answer: answer.clone(),
            };
            let inner = &map.engine().inner;
            if inner.fault_in.get().push(work).is_err() {
                self.state = State::Done;
                return Poll::Ready(Err(FaultError::NoMemory));
            }
            self.state = State::Waiting(range, answer, ProcessGeneration::here());
        }
        let State::Waiting(_, answer, _) = &self.state else {
            panic!("polled after it was ready");
        };
        let mut inner = lock(&answer.inner);
        match inner.result.take() {
            Some(result) => {
                drop(inner);
                self.state = State::Done;
                Poll::Ready(result)
            }
            None => {
                inner.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

struct Work {
    /// What to read ahead of, of a file.
    cache: Option<Arc<PageCache>>,
    space: Arc<AddressSpace>,
    addresses: Range<usize>,
    answer: Arc<Answer>,
}

/// The threads of an engine and what they have to do.
#[derive(Default)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    started: Mutex<usize>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<(VecDeque<Work>, bool)>,
    more: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workers {
    fn push(&self, work: Work) -> std::io::Result<()> {
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

impl Shared {
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
