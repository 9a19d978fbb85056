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
//! **Timeouts** are set by the model ([`crate::model::Timeouts`]): where they
//! never end, a wake-up that is lost ends the model, although on the real
//! machine it would cost no more than the timeout.
//!
//! Neither call orders the caller's memory (both are `Relaxed`), except that
//! loom's unpark makes the waker's past visible to a thread that really slept.
//! That cannot hide a missing ordering: every sleep is in a loop whose test
//! also succeeds in schedules where nobody slept.
//!
//! The engine makes words of zeroed memory. So a word is a pointer to loom's state
//! of it; one of zeroed memory gets it when it is first used. Loom wants
//! it to be older than every thread that uses it: some are made in advance.

use core::ops::Deref;
use core::sync::atomic::AtomicPtr;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::model;

/// A sleeper and whether somebody woke it. Loom runs one thread at a time and
/// switches only at its own operations, so these are not explored.
#[derive(Debug)]
struct Sleeper {
    thread: loom::thread::Thread,
    woken: Arc<AtomicBool>,
}

/// A word as loom knows it.
#[derive(Debug)]
struct Known {
    word: AtomicU32,
    /// Borrowed over no operation of loom's.
    sleepers: RefCell<VecDeque<Sleeper>>,
}

/// Words of zeroed memory that a model may use.
const SPARE: usize = 64;

/// The words of one schedule.
#[derive(Default)]
struct Words {
    /// They stay where they are until the next schedule begins.
    #[expect(clippy::vec_box, reason = "words have their addresses")]
    all: Vec<Box<Known>>,
    /// Those that hold 0 and are nobody's yet.
    spare: Vec<*mut Known>,
}

thread_local! {
    /// Loom's threads are coroutines of one thread.
    static WORDS: RefCell<Words> = RefCell::default();
}

/// Forgets the words of the schedule before, of which nothing is left, and
/// makes some for zeroed memory.
pub(crate) fn begin() {
    WORDS.take();
    let spare = (0..SPARE).map(|_| make(0)).collect();
    WORDS.with_borrow_mut(|words| words.spare = spare);
}

fn make(value: u32) -> *mut Known {
    let mut known = Box::new(Known {
        word: AtomicU32::new(value),
        sleepers: RefCell::default(),
    });
    let address: *mut Known = &mut *known;
    WORDS.with_borrow_mut(|words| words.all.push(known));
    address
}

/// An `AtomicU32` that a thread can wait on. All zeros are a word that holds 0.
#[derive(Debug)]
#[repr(transparent)]
pub struct WaitWord(AtomicPtr<Known>);

impl WaitWord {
    /// A word that holds `value`.
    pub fn new(value: u32) -> Self {
        Self(AtomicPtr::new(make(value)))
    }

    fn known(&self) -> &Known {
        let mut known = self.0.load(Ordering::Relaxed);
        if known.is_null() {
            let spare = WORDS.with_borrow_mut(|words| words.spare.pop());
            known = spare.expect("a model uses few words of zeroed memory");
            self.0.store(known, Ordering::Relaxed);
        }
        // SAFETY: kept in its box until the next schedule begins, and words do
        // not outlive theirs. One thread runs at a time.
        unsafe { &*known }
    }

    /// Sleeps while the word holds `expected`, until woken. Where the model's
    /// timeouts end at once, a sleep with one lets the others run and returns.
    pub fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        let Known { word, sleepers } = self.known();
        if word.fetch_add(0, Relaxed) != expected {
            return;
        }
        if timeout_ns.is_some() && model::timeouts_end() {
            loom::thread::yield_now();
            return;
        }
        let woken = Arc::new(AtomicBool::new(false));
        sleepers.borrow_mut().push_back(Sleeper {
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
        let Known { word, sleepers } = self.known();
        // Changes nothing; makes loom explore both orders of this wake-up and
        // another thread's going to sleep.
        word.fetch_add(0, Relaxed);
        for _ in 0..count {
            let Some(sleeper) = sleepers.borrow_mut().pop_front() else {
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
        &self.known().word
    }
}
