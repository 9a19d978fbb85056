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
            end: None,
            waker: None,
        };
        Self {
            inner: Mutex::new(outstanding),
        }
    }
}

impl<T> Answer<T> {
    /// The answer, or a waker is noted that is woken once there is one. Panics if the work has panicked.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<T> {
        if let Some(end) =
            self.end_or(|noted| noted.as_ref().is_some_and(|noted| noted.will_wake(waker)))
        {
            return end;
        }
        // To clone a waker, and to drop one, is code of the program's, which may wait for this answer: not under the lock.
        let mut to_note = Some(waker.clone());
        let end = self.end_or(|noted| {
            core::mem::swap(noted, &mut to_note);
            true
        });
        end.expect("a waker is noted")
    }

    /// How the work has ended, or `Pending` if `is_noted`, which is asked under the lock, says so of the noted waker.
    fn end_or(&self, is_noted: impl FnOnce(&mut Option<Waker>) -> bool) -> Option<Poll<T>> {
        let mut inner = lock(&self.inner);
        match inner.end.take() {
            Some(End::Answered(result)) => Some(Poll::Ready(result)),
            Some(End::Panicked) => {
                inner.end = Some(End::Panicked);
                drop(inner);
                panic!("the work for this future has panicked in its thread");
            }
            None => is_noted(&mut inner.waker).then_some(Poll::Pending),
        }
    }

    /// The work has ended. As soon as the waiting task runs, it may drop everything that the work used.
    fn end(self: Arc<Self>, end: End<T>) {
        let waker = {
            let mut inner = lock(&self.inner);
            inner.end = Some(end);
            inner.waker.take()
        };
        drop(self);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[derive(Debug)]
struct Outstanding<T> {
    /// How the work has ended, once it has.
    end: Option<End<T>>,
    /// The waker to call then.
    waker: Option<Waker>,
}

#[derive(Debug)]
enum End<T> {
    Answered(T),
    /// The work went without an answer.
    Panicked,
}

/// The answer that work has to give. If it is dropped instead, as by a panic, the task that waits is told so.
pub(crate) struct AnswerDue<T>(Option<Arc<Answer<T>>>);

impl<T> AnswerDue<T> {
    pub(crate) fn to(answer: &Arc<Answer<T>>) -> Self {
        Self(Some(answer.clone()))
    }

    /// True if nobody waits for it any more.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|answer| Arc::strong_count(answer) == 1)
    }

    /// Gives it.
    pub(crate) fn give(mut self, result: T) {
        if let Some(answer) = self.0.take() {
            answer.end(End::Answered(result));
        }
    }
}

impl<T> Drop for AnswerDue<T> {
    fn drop(&mut self) {
        if !self.is_unwanted()
            && let Some(answer) = self.0.take()
        {
            answer.end(End::Panicked);
        }
    }
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
    use core::time::Duration;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;
    use std::thread::JoinHandle;

    /// Tells that it was woken.
    struct Tells(Sender<()>);

    impl Wake for Tells {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
        }
    }

    /// Failed before: the panic was caught in the thread, and nobody woke the task.
    #[test]
    fn work_that_panics_ends_the_wait() {
        let workers = Workers::default();
        let answer = Arc::new(Answer::<u32>::default());
        let (woken, is_woken) = channel();
        let waker = Waker::from(Arc::new(Tells(woken)));
        assert!(answer.poll(&waker).is_pending());
        let due = AnswerDue::to(&answer);
        workers.push(Box::new(move || {
            let _due = due;
            panic!("before it answers");
        }));
        is_woken.recv_timeout(Duration::from_secs(30)).unwrap();
        // It says so each time.
        for _ in 0..2 {
            let polled = catch_unwind(AssertUnwindSafe(|| answer.poll(&waker)));
            assert!(polled.is_err());
        }
    }

    /// When it is dropped, waits for a thread that gives the answer.
    struct Joins(Sender<()>, Option<JoinHandle<()>>);

    impl Wake for Joins {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Joins {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.take().unwrap().join().unwrap();
        }
    }

    /// Failed before: the waker was dropped under the lock that the thread waited for.
    #[test]
    fn a_waker_may_wait_for_the_answer_when_it_is_dropped() {
        let (over, is_over) = channel();
        std::thread::spawn(move || {
            let answer = Arc::new(Answer::default());
            let due = AnswerDue::to(&answer);
            let (go, goes) = channel();
            let thread = std::thread::spawn(move || {
                goes.recv().unwrap();
                due.give(5);
            });
            let joins = Waker::from(Arc::new(Joins(go, Some(thread))));
            assert!(answer.poll(&joins).is_pending());
            drop(joins);
            let (woken, is_woken) = channel();
            let tells = Waker::from(Arc::new(Tells(woken)));
            assert!(answer.poll(&tells).is_pending());
            is_woken.recv().unwrap();
            assert_eq!(answer.poll(&tells), Poll::Ready(5));
            over.send(()).unwrap();
        });
        is_over.recv_timeout(Duration::from_secs(30)).unwrap();
    }

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
