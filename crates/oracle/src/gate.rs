//! A gate that holds the reads and writes of a store back until the test lets them end.

use core::ops::{Deref, DerefMut};
use softfault_engine::lock::{Mutex, MutexGuard};
use softfault_engine::store::{Complete, Read, Reap, StoreError};
use sync::atomic::Ordering::{Acquire, Release};
use sync::wait::WaitWord;

/// A second, and how many of them a test waits for an event.
const SECOND_NS: u64 = 1_000_000_000;
const PATIENCE: usize = 60;

/// A store's state, and the threads that wait at the gate before it.
pub(crate) struct Gate<T> {
    /// Asynchronous reads that it takes at a time; 0: it has no such way.
    queue: usize,
    /// Protected by its own lock: the engine's, which all worlds know.
    inner: Mutex<Gated<T>>,
    /// Raised by one with every change of `inner`.
    changed: WaitWord,
}

/// The state behind the lock.
pub(crate) struct Gated<T> {
    state: T,
    /// Nothing ends while it is closed, except so many.
    closed: bool,
    released: usize,
    in_flight: Vec<InFlight>,
    /// Asynchronous reads that were begun.
    pub(crate) submitted: u64,
    /// Reads and writes that wait in the thread that makes them.
    blocked: usize,
}

#[derive(Clone, Copy)]
struct InFlight(Read);

// SAFETY: the buffer belongs to the read, wherever that is completed.
unsafe impl Send for InFlight {}

impl<T> Deref for Gated<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> DerefMut for Gated<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}

impl<T> Gated<T> {
    /// True if something that was begun may end now: it does.
    fn may_end(&mut self) -> bool {
        if self.closed && self.released > 0 {
            self.released -= 1;
            return true;
        }
        !self.closed
    }
}

impl<T> Gate<T> {
    /// Open, before a store that takes `queue` asynchronous reads at a time.
    pub(crate) fn new(state: T, queue: usize) -> Self {
        Self {
            queue,
            inner: Mutex::new(Gated {
                state,
                closed: false,
                released: 0,
                in_flight: Vec::new(),
                submitted: 0,
                blocked: 0,
            }),
            changed: WaitWord::new(0),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Gated<T>> {
        self.inner.lock()
    }

    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut Gated<T>) -> R) -> R {
        let result = f(&mut self.lock());
        self.tell();
        result
    }

    fn tell(&self) {
        // Release pairs with the Acquire in `wait_for_change`'s callers; they
        // look at the state behind the lock anyway.
        self.changed.fetch_add(1, Release);
        self.changed.wake(u32::MAX);
    }

    /// Gives the lock up, waits until something has changed since, or until
    /// `timeout_ns` have passed, and takes it again. True if something has.
    fn wait_for_change<'a>(
        &'a self,
        inner: MutexGuard<'a, Gated<T>>,
        timeout_ns: Option<u64>,
    ) -> (MutexGuard<'a, Gated<T>>, bool) {
        // Under the lock: a later change raises the word afterwards.
        let seen = self.changed.load(Acquire);
        drop(inner);
        self.changed.wait(seen, timeout_ns);
        let changed = self.changed.load(Acquire) != seen;
        (self.lock(), changed)
    }

    /// Holds back all that has not ended.
    pub(crate) fn close(&self) {
        self.change(|inner| inner.closed = true);
    }

    /// Lets all end.
    pub(crate) fn open(&self) {
        self.change(|inner| inner.closed = false);
    }

    /// Lets so many end although it is closed.
    pub(crate) fn release(&self, count: usize) {
        self.change(|inner| inner.released += count);
    }

    /// Waits until `count` are held back, in a thread or in the queue.
    pub(crate) fn wait_blocked(&self, count: usize) {
        let mut inner = self.lock();
        let mut patience = PATIENCE;
        while inner.blocked + inner.in_flight.len() < count {
            assert!(patience > 0, "{count} reads were never begun");
            let (again, changed) = self.wait_for_change(inner, Some(SECOND_NS));
            inner = again;
            patience -= usize::from(!changed);
        }
    }

    /// Waits at the gate; the state is the caller's when it returns.
    pub(crate) fn pass(&self, begin: impl FnOnce(&mut T)) -> MutexGuard<'_, Gated<T>> {
        let mut inner = self.lock();
        begin(&mut inner.state);
        inner.blocked += 1;
        drop(inner);
        self.tell();
        inner = self.lock();
        while !inner.may_end() {
            inner = self.wait_for_change(inner, None).0;
        }
        inner.blocked -= 1;
        inner
    }

    /// Begins asynchronous reads, as many as the queue takes.
    pub(crate) fn submit(&self, reads: &[Read], mut begin: impl FnMut(&mut T, &Read)) -> usize {
        self.change(|inner| {
            let started = reads.len().min(self.queue - inner.in_flight.len());
            inner.submitted += started as u64;
            for read in &reads[..started] {
                begin(&mut inner.state, read);
                inner.in_flight.push(InFlight(*read));
            }
            started
        })
    }

    /// As [`Store::reap`](softfault_engine::Store::reap); `fill` does a read.
    pub(crate) fn reap(
        &self,
        cookie: u64,
        complete: &dyn Complete,
        timeout_ns: u64,
        mut fill: impl FnMut(&mut T, &Read) -> Result<usize, StoreError>,
    ) -> Reap {
        let mut inner = self.lock();
        loop {
            while !inner.in_flight.is_empty() && inner.may_end() {
                let InFlight(read) = inner.in_flight.remove(0);
                let result = fill(&mut inner.state, &read);
                drop(inner);
                complete.complete(read.cookie, result);
                // Others wait for this one too.
                self.tell();
                inner = self.lock();
            }
            let mine = |InFlight(read): &InFlight| read.cookie == cookie;
            if !inner.in_flight.iter().any(mine) {
                return Reap::NotInFlight;
            }
            if timeout_ns == 0 {
                return Reap::TimedOut;
            }
            // Begins anew with every change: nobody counts on the time.
            let (again, changed) = self.wait_for_change(inner, Some(timeout_ns));
            if !changed {
                return Reap::TimedOut;
            }
            inner = again;
        }
    }
}
