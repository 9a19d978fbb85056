//! A process of the tree that has an engine.

use super::robust::{Locked, Robust};
use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};
use core::time::Duration;
use softfault::MIN_MEMORY;
use softfault::clock::now_ns;

const PAGE: u64 = crate::decide::PAGE as u64;
/// Nobody's.
const FREE: u32 = 0;
/// A process's, as long as that has the lock.
const TAKEN: u32 = 1;

/// Bits of the wake word: this process is short of memory; another is, or has ended.
pub const SHORT: u32 = 1;
pub const OTHER: u32 = 2;

/// A member. Under the page's lock, if nothing else is said; relaxed: the lock orders it.
#[repr(C, align(128))]
pub struct Member {
    /// Locked by a thread of the process, from its beginning to its end.
    owner: Robust,
    state: AtomicU32,
    /// The word that the thread sleeps on. Any process of the tree sets bits; the thread clears them.
    pub wake_word: AtomicU32,
    /// Bytes that its engine may have.
    pub share: AtomicU64,
    /// The most that its engine has had. Written by its own process at any time.
    pub peak: AtomicU64,
    /// Bytes that it would have, if it could.
    pub want: AtomicU64,
    /// When its process has looked last, in nanoseconds of the system's monotonic clock.
    looked_at: AtomicU64,
    /// 1: it evicts for want of memory.
    pub is_short: AtomicU32,
}

/// A process that is short looks ten times a second. One that has not looked for so long is stopped, or wants nothing.
const STOPPED_NS: u64 = 2_000_000_000;

impl Member {
    /// True if it is a process, which may have ended. With the page locked.
    pub fn is_taken(&self) -> bool {
        self.state.load(Relaxed) == TAKEN
    }

    /// A process that has ended is none from now on. With the page locked.
    pub fn reap(&self) {
        if self.is_taken() && self.owner.try_lock().is_some() {
            self.state.store(FREE, Relaxed);
        }
    }

    /// Of nobody, becomes the calling thread's, with no share. With the page locked.
    pub fn begin(&self) -> Option<Locked<'_>> {
        // SAFETY: the place is free: its process has ended.
        unsafe { self.owner.make() };
        let locked = self.owner.try_lock()?;
        self.share.store(0, Relaxed);
        self.peak.store(0, Relaxed);
        self.want.store(u64::MAX, Relaxed);
        self.is_short.store(1, Relaxed);
        self.looked_at.store(now_ns(), Relaxed);
        self.wake_word.store(0, Relaxed);
        self.state.store(TAKEN, Relaxed);
        Some(locked)
    }

    /// Its process looks.
    pub fn looks(&self) {
        self.looked_at.store(now_ns(), Relaxed);
    }

    fn is_stopped(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.looked_at.load(Relaxed)) > STOPPED_NS
    }

    /// True if it evicts for want of memory, and takes what it is given.
    pub fn takes_more(&self, now_ns: u64) -> bool {
        self.is_short.load(Relaxed) == 1 && !self.is_stopped(now_ns)
    }

    /// Bytes that it would have: no more than it has, if it takes none.
    pub fn wants(&self, now_ns: u64) -> u64 {
        let want = self.want.load(Relaxed);
        match self.is_stopped(now_ns) {
            true => want.min(self.share.load(Relaxed)),
            false => want,
        }
    }

    /// The part that it is due, where wants are cut at a level.
    pub fn due(&self, level: u64) -> u64 {
        let due = self.want.load(Relaxed).min(level) & !(PAGE - 1);
        due.max(MIN_MEMORY as u64)
    }

    /// Wakes its thread.
    pub fn wake(&self, bit: u32) {
        // Release pairs with the Acquire in `wait`.
        if self.wake_word.fetch_or(bit, Ordering::Release) & bit == 0 {
            let (wake, all) = (libc::FUTEX_WAKE, i32::MAX);
            // SAFETY: the word is mapped for ever.
            unsafe { softfault::system_call!(libc::SYS_futex, self.wake_word.as_ptr(), wake, all) };
        }
    }

    /// Sleeps until one of the `bits` is set, at most so long; which are set, and set no more. For its thread.
    pub fn wait(&self, bits: u32, most: Option<Duration>) -> u32 {
        let until = most.map(|most| std::time::Instant::now() + most);
        loop {
            // Acquire pairs with the Release in `wake`.
            let woken = self.wake_word.load(Ordering::Acquire);
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            if woken & bits != 0 || left == Some(Duration::ZERO) {
                return self.wake_word.fetch_and(!bits, Ordering::Acquire) & bits;
            }
            let left = left.map(|left| libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos() as _,
            });
            let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            let wait = libc::FUTEX_WAIT;
            // SAFETY: the word is mapped for ever, and the time is there.
            unsafe {
                softfault::system_call!(libc::SYS_futex, self.wake_word.as_ptr(), wait, woken, left)
            };
        }
    }
}
