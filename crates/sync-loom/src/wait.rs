//! The waitable word, as the futex that it is on the real machine.
//!
//! The check of the word and going to sleep are one step, as the kernel makes
//! them one under its bucket lock; a wake-up that finds nobody asleep is lost.
//! The check is a read-modify-write because a plain load of loom's may return
//! an old value, which the kernel's cannot. Loom leaves a plain store of another
//! thread unordered with it, and so may go on reading the old value after the
//! store: words that are waited on must be changed by read-modify-writes, or
//! models report deadlocks that there are not. A thread that nobody wakes ends
//! the model with loom's "deadlock".
//!
//! Neither call orders the caller's memory (both are `Relaxed`), except that
//! loom's unpark makes the waker's past visible to a thread that really slept.
//! That cannot hide a missing ordering: every sleep is in a loop whose test
//! also succeeds in schedules where nobody slept.

use core::ops::Deref;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A sleeper and whether somebody woke it. Loom runs one thread at a time and
/// switches only at its own operations, so these are not explored.
#[derive(Debug)]
struct Sleeper {
    thread: loom::thread::Thread,
    woken: Arc<AtomicBool>,
}

/// An `AtomicU32` that a thread can wait on.
#[derive(Debug)]
pub struct WaitWord {
    word: AtomicU32,
    sleepers: Mutex<VecDeque<Sleeper>>,
}

impl WaitWord {
    /// A word that holds `value`.
    pub fn new(value: u32) -> Self {
        Self {
            word: AtomicU32::new(value),
            sleepers: Mutex::new(VecDeque::new()),
        }
    }

    /// Sleeps while the word holds `expected`, until woken. With a timeout it
    /// lets the others run and returns, as if the time were up.
    pub fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        if self.word.fetch_add(0, Relaxed) != expected {
            return;
        }
        if timeout_ns.is_some() {
            loom::thread::yield_now();
            return;
        }
        let woken = Arc::new(AtomicBool::new(false));
        self.sleepers.lock().unwrap().push_back(Sleeper {
            thread: loom::thread::current(),
            woken: Arc::clone(&woken),
        });
        while !woken.load(Ordering::Relaxed) {
            loom::thread::park();
        }
    }

    /// Wakes up to `count` threads that wait on the word, the longest-waiting
    /// first.
    pub fn wake(&self, count: u32) {
        // Changes nothing; makes loom explore both orders of this wake-up and
        // another thread's going to sleep.
        self.word.fetch_add(0, Relaxed);
        let mut sleepers = self.sleepers.lock().unwrap();
        for _ in 0..count {
            let Some(sleeper) = sleepers.pop_front() else {
                break;
            };
            sleeper.woken.store(true, Ordering::Relaxed);
            sleeper.thread.unpark();
        }
    }
}

impl Default for WaitWord {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Deref for WaitWord {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}
