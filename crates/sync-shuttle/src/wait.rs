//! The waitable word, as the futex that it is on the real machine.
//!
//! The check of the word and going to sleep are one step; a wake-up that finds
//! nobody asleep is lost. Sleepers are known by the word's address, so that a
//! word is four bytes, and its memory may be zeroed, given up and reused.
//!
//! **Timeouts.** There is no time here. A sleep with a timeout ends when it is
//! woken; or when no other thread can run, which is a *stall*; or, a few times in
//! some schedules, because the seed says so. A lost wake-up looks like a stall
//! where every sleep has a timeout: scenarios say whether they may
//! have any ([`Explore::may_stall`](crate::explore::Explore::may_stall)).

use crate::atomic::AtomicU32;
use crate::point::{self, Sleeper, point, with_sleepers};
use core::ops::Deref;
use core::panic::Location;
use std::time::Duration;

/// An `AtomicU32` that a thread can wait on.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct WaitWord(AtomicU32);

impl WaitWord {
    /// A word that holds `value`.
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Sleeps while the word holds `expected`, until woken, or, with a timeout,
    /// until the schedule says that the time is up.
    #[track_caller]
    pub fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        point();
        // No scheduling point from here until asleep.
        if self.0.peek() != expected {
            return;
        }
        let ticket = point::next_ticket();
        let sleeper = Sleeper {
            word: self.key(),
            task: point::current(),
            ticket,
            timed: timeout_ns.is_some(),
            woken: false,
            at: Location::caller(),
        };
        with_sleepers(|sleepers| sleepers.push(sleeper));
        // Runnable to shuttle; our scheduler does not choose it before it was
        // woken or its time is up.
        shuttle::thread::sleep(Duration::ZERO);
        with_sleepers(|sleepers| sleepers.retain(|sleeper| sleeper.ticket != ticket));
    }

    /// Wakes up to `count` threads that wait on the word, the longest-waiting
    /// first. The word is not read.
    pub fn wake(&self, count: u32) {
        point();
        let key = self.key();
        with_sleepers(|sleepers| {
            let asleep = |sleeper: &&mut Sleeper| sleeper.word == key && !sleeper.woken;
            let woken = sleepers.iter_mut().filter(asleep).take(count as usize);
            woken.for_each(|sleeper| sleeper.woken = true);
        });
    }
}

impl Deref for WaitWord {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        &self.0
    }
}
