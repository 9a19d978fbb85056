//! Models of the waitable word by itself, on which every lock, gate and count here
//! is built. A wake-up that is lost leaves a thread asleep, which is a
//! deadlock to loom.

use std::sync::Arc;

use crate::model::explore;
use crate::model::spawn;
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::wait::WaitWord;

/// A word, and the value that is handed over by it.
struct Handed {
    word: WaitWord,
    value: UnsafeCell<u32>,
}

// SAFETY: `value` is handed over by `word`; loom checks it.
unsafe impl Sync for Handed {}
// SAFETY: as above.
unsafe impl Send for Handed {}

impl Handed {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: WaitWord::new(0),
            value: UnsafeCell::new(0),
        })
    }

    fn wait_past(&self, value: u32) -> u32 {
        loop {
            let now = self.word.load(Acquire);
            if now > value {
                return now;
            }
            self.word.wait(now, None);
        }
    }

    fn give(&self) {
        // SAFETY: nobody reads before the word says so; loom checks it.
        self.value.with_mut(|value| unsafe { *value = 7 });
        self.word.fetch_add(1, Release);
        self.word.wake(u32::MAX);
    }

    fn take(&self) {
        self.wait_past(0);
        // SAFETY: handed over; loom checks it.
        let value = self.value.with(|value| unsafe { *value });
        assert_eq!(value, 7);
    }
}

#[test]
fn a_change_of_the_word_with_a_wake_is_never_missed() {
    explore(None, || {
        let handed = Handed::new();
        let waiter = {
            let handed = Arc::clone(&handed);
            spawn(move || handed.take())
        };
        handed.give();
        waiter.join().unwrap();
    });
}

#[test]
fn all_waiters_are_woken() {
    explore(Some(3), || {
        let handed = Handed::new();
        let waiters = [(); 2].map(|()| {
            let handed = Arc::clone(&handed);
            spawn(move || handed.take())
        });
        handed.give();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn one_is_woken_for_each_that_is_given() {
    // Two takers of two tokens, each woken alone: a token is the word's value.
    explore(Some(3), || {
        let word = Arc::new(WaitWord::new(0));
        let take = {
            let word = Arc::clone(&word);
            move || loop {
                let taken = word.fetch_update(Relaxed, Relaxed, |now| now.checked_sub(1));
                if taken.is_ok() {
                    return;
                }
                word.wait(0, None);
            }
        };
        let takers = [(); 2].map(|()| spawn(take.clone()));
        for _ in 0..2 {
            word.fetch_add(1, Relaxed);
            word.wake(1);
        }
        for taker in takers {
            taker.join().unwrap();
        }
    });
}

#[test]
fn a_change_by_another_ends_the_wait_or_comes_before_it() {
    // One changes the word and does not wake: whoever checks after the change
    // does not go to sleep, and the wake-up of the second change is for all.
    explore(Some(3), || {
        let word = Arc::new(WaitWord::new(0));
        let waiter = {
            let word = Arc::clone(&word);
            spawn(move || {
                let mut now = word.load(Relaxed);
                while now < 2 {
                    word.wait(now, None);
                    now = word.load(Relaxed);
                }
            })
        };
        let other = {
            let word = Arc::clone(&word);
            spawn(move || {
                word.fetch_add(1, Relaxed);
                word.wake(u32::MAX);
            })
        };
        word.fetch_add(1, Relaxed);
        word.wake(u32::MAX);
        waiter.join().unwrap();
        other.join().unwrap();
    });
}
