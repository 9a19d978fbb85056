//! Threads of an engine that wait in the place of callers that do not want to block: some for ranges that the engine faults in, some
//! for those that the kernel does, and others for flushes.
//!
//! They are started at the first use. A child of fork has none of its parent's and starts its own.

use crate::{signal, thread};
use core::panic::AssertUnwindSafe;
use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads an engine, of each kind.
const THREADS: usize = 4;

/// The result of work that was handed over.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    inner: Mutex<Outstanding<T>>,
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        let outstanding = Outstanding {
            result: None,
            waker: None,
        };
        Self {
            inner: Mutex::new(outstanding),
        }
    }
}

impl<T> Answer<T> {
    /// True if nobody waits for it any more.
    pub(crate) fn is_unwanted(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    /// Gives the answer. As soon as the waiting task runs, it may drop everything that the work used.
    pub(crate) fn give(self: Arc<Self>, result: T) {
        let waker = {
            let mut inner = lock(&self.inner);
            inner.result = Some(result);
            inner.waker.take()
        };
        drop(self);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The answer, or a waker is noted that is woken once there is one.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<T> {
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

#[derive(Debug)]
struct Outstanding<T> {
    /// The answer, once there is one.
    result: Option<T>,
    /// The waker to call then.
    waker: Option<Waker>,
}

/// The work; giving its answer is its last step.
type Work = Box<dyn FnOnce() + Send>;

/// The threads of an engine for one kind of work.
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
    /// Hands work over. Where the system has no thread for it, it is done when this returns.
    pub(crate) fn push(&self, work: Work) {
        let mut started = lock(&self.started);
        if *started < THREADS {
            let shared = self.shared.clone();
            let serve = move || shared.serve();
            match thread::start(c"softfault-fault", thread::STACK, serve) {
                Ok(_) => *started += 1,
                Err(_) if *started == 0 => {
                    drop(started);
                    return here(work);
                }
                Err(_) => {}
            }
        }
        drop(started);
        lock(&self.shared.queue).0.push_back(work);
        self.shared.more.notify_one();
    }
}

/// Does work in this thread, with the mask that threads of ours have.
#[cold]
#[inline(never)]
fn here(work: Work) {
    let _masked = signal::masked();
    work();
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Each map has a reference to the engine: no work is left.
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
                // A waker of the program's, or a task that it drops: the thread goes on with others' work.
                let _ = catch_unwind(AssertUnwindSafe(work));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn work_that_panics_ends_no_thread() {
        let workers = Workers::default();
        for _ in 0..2 * THREADS {
            workers.push(Box::new(|| panic!("a waker")));
        }
        let (done, is_done) = channel();
        let last = move || done.send(()).unwrap();
        workers.push(Box::new(last));
        is_done.recv().unwrap();
    }
}
