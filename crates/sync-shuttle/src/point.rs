//! Scheduling points, and the world's state of one schedule.
//!
//! All of it is of the real thread that runs the schedule: shuttle's threads are
//! its coroutines, so that a plain cell is enough.

use core::panic::Location;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// A thread that sleeps on a word.
pub(crate) struct Sleeper {
    /// Address of the word.
    pub(crate) word: usize,
    pub(crate) task: usize,
    /// Tells this sleep from the next one of the same thread.
    pub(crate) ticket: u64,
    /// Its time may be up.
    pub(crate) timed: bool,
    pub(crate) woken: bool,
    /// Where it fell asleep.
    pub(crate) at: &'static Location<'static>,
}

thread_local! {
    /// Threads that were spawned and have not ended.
    static OTHERS: Cell<usize> = const { Cell::new(0) };
    static TICKETS: Cell<u64> = const { Cell::new(0) };
    /// The longest-waiting first.
    static SLEEPERS: RefCell<Vec<Sleeper>> = const { RefCell::new(Vec::new()) };
    static STALLS: Cell<u64> = const { Cell::new(0) };
    static CPUS: Cell<usize> = const { Cell::new(1) };
}

/// Begins a schedule on so many processors: nothing is left of the one before,
/// however it ended.
pub(crate) fn reset(cpus: usize) {
    CPUS.set(cpus);
    OTHERS.set(0);
    TICKETS.set(0);
    SLEEPERS.take();
    STALLS.set(0);
    crate::bytes::reset();
}

/// Another thread may run here. With no other thread there is nothing to choose.
#[inline]
pub(crate) fn point() {
    if OTHERS.get() > 0 {
        // No more than a switch of shuttle's, which knows no time.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// Number of the thread that runs: 0 is the first.
pub(crate) fn current() -> usize {
    shuttle::current::me().into()
}

pub(crate) fn cpus() -> usize {
    CPUS.get()
}

/// Counts a thread that is alive. Ends with it.
pub(crate) struct Alive;

impl Alive {
    pub(crate) fn new() -> Self {
        OTHERS.set(OTHERS.get() + 1);
        Self
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        OTHERS.set(OTHERS.get().saturating_sub(1));
    }
}

pub(crate) fn next_ticket() -> u64 {
    TICKETS.set(TICKETS.get() + 1);
    TICKETS.get()
}

pub(crate) fn with_sleepers<R>(f: impl FnOnce(&mut Vec<Sleeper>) -> R) -> R {
    SLEEPERS.with_borrow_mut(f)
}

/// A timeout ended only because nobody else could run.
pub(crate) fn count_stall() {
    STALLS.set(STALLS.get() + 1);
}

pub(crate) fn stalls() -> u64 {
    STALLS.get()
}

/// Which thread sleeps where, in words.
pub(crate) fn asleep() -> String {
    with_sleepers(|sleepers| {
        let sleepers = sleepers.iter().filter(|sleeper| !sleeper.woken);
        let all =
            sleepers.map(|sleeper| format!("thread {} sleeps at {}", sleeper.task, sleeper.at));
        all.collect::<Vec<_>>().join(", ")
    })
}
