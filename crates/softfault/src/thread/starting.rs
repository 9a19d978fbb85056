//! Threads that are being started, and forks of the process meanwhile.
//!
//! Before our code runs in it, a new thread runs code of the C library and, in a program that was built with one, of a sanitizer, which
//! allocates. The allocator of gcc 12's AddressSanitizer is locked by then, and does not prepare for forks: a child would have it locked
//! for ever. The program may have no other thread, and no reason to expect that. So a fork waits until no thread of ours is that
//! young, and none is started until it is over.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

/// Parties to starts, and whether a fork holds the next start back.
pub(super) struct Starting(AtomicU32);

/// A fork is about to be made, or is made.
const HELD: u32 = 1 << 31;

/// The thread that starts another one, and that one.
const PARTIES: u32 = 2;

/// The longest waits, of a fork and of a start. Where a fork needs a thread that is held back, or a thread that starts needs an allocator
/// that is locked for the fork, both go on, and the child may meet that lock.
const FORK_WAITS: Duration = Duration::from_millis(100);
const START_WAITS: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(100);

thread_local! {
    /// This thread forks: its handlers may start threads.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

impl Starting {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A thread is about to be started. Each party says when it has done its part.
    pub(super) fn begin(&self) {
        let mut waits = !FORKS.get();
        let until = Instant::now() + START_WAITS;
        // Acquire and Release, as below: the child has what the parties have done before the fork.
        while (self.0)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                (state & HELD == 0 || !waits).then_some(state + PARTIES)
            })
            .is_err()
        {
            std::thread::sleep(PAUSE);
            waits = Instant::now() < until;
        }
    }

    /// One of the parties has done its part.
    pub(super) fn end(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits for those that have begun.
    pub(super) fn wait(&self) {
        let until = Instant::now() + FORK_WAITS;
        while self.0.load(Ordering::Acquire) & !HELD != 0 && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    /// Holds the next starts back, and waits for those that have begun.
    pub(super) fn hold(&self) -> HeldStarts<'_> {
        FORKS.set(true);
        self.0.fetch_or(HELD, Ordering::AcqRel);
        self.wait();
        HeldStarts(self)
    }

    /// In a child of fork, which has one thread.
    pub(super) fn forked(&self) {
        FORKS.set(false);
        self.0.store(0, Ordering::Release);
    }
}

/// No thread of ours is being started.
pub(crate) struct HeldStarts<'a>(&'a Starting);

impl Drop for HeldStarts<'_> {
    fn drop(&mut self) {
        FORKS.set(false);
        self.0.0.fetch_and(!HELD, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread::{scope, sleep};

    #[test]
    fn a_fork_waits_for_threads_that_start() {
        let starting = Starting::new();
        starting.begin();
        let is_held = AtomicBool::new(false);
        let was_early = scope(|scope| {
            scope.spawn(|| {
                let _held = starting.hold();
                is_held.store(true, Ordering::SeqCst);
            });
            let waits = || starting.0.load(Ordering::SeqCst) & HELD != 0;
            while !waits() && !is_held.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            starting.end();
            sleep(10 * PAUSE);
            let was_early = is_held.load(Ordering::SeqCst);
            starting.end();
            was_early
        });
        assert!(!was_early, "one of the two had not done its part");
        assert_eq!(starting.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_start_waits_for_a_fork() {
        let starting = Starting::new();
        let has_begun = AtomicBool::new(false);
        let was_early = scope(|scope| {
            let held = starting.hold();
            scope.spawn(|| {
                starting.begin();
                has_begun.store(true, Ordering::SeqCst);
            });
            sleep(10 * PAUSE);
            let was_early = has_begun.load(Ordering::SeqCst);
            drop(held);
            was_early
        });
        assert!(!was_early);
        assert!(has_begun.into_inner());
    }

    #[test]
    fn a_thread_that_forks_may_start_one() {
        let starting = Starting::new();
        let held = starting.hold();
        starting.begin();
        starting.end();
        starting.end();
        drop(held);
        assert_eq!(starting.0.load(Ordering::SeqCst), 0);
    }
}
