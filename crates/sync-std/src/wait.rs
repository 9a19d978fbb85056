//! The waitable word: 32 bits that threads can sleep on, as a futex.

use crate::system_call::{answered, call};
use core::ops::Deref;
use core::sync::atomic::AtomicU32;

/// An `AtomicU32` that a thread can wait on. All atomic operations are there
/// by `Deref`; changing the word wakes nobody by itself. While others may wait
/// on it, change it by read-modify-writes (`swap`, not `store`): the model
/// checker cannot put a plain store in order with the check before a sleep.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct WaitWord(AtomicU32);

impl WaitWord {
    /// A word that holds `value`.
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// Sleeps while the word holds `expected`, until woken, or until
    /// `timeout_ns` have passed. Returns at once if the word holds something
    /// else, and may return early for no reason: callers look again. A signal handler that runs
    /// meanwhile does not end a sleep with a timeout: callers count such sleeps as time.
    // Not inlined, nor is `wake`: their frames are not those of callers deep in the fault handler.
    #[inline(never)]
    pub fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        // A moment, and not a duration: what is left after a signal handler need not be known.
        let until = timeout_ns.map(|ns| {
            let at = crate::clock::now_ns().saturating_add(ns);
            libc::timespec {
                tv_sec: (at / 1_000_000_000) as _,
                tv_nsec: (at % 1_000_000_000) as libc::c_long,
            }
        });
        let until: *const libc::timespec = match &until {
            Some(until) => until,
            None => core::ptr::null(),
        };
        let args = [
            self.0.as_ptr() as usize,
            (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG) as usize,
            expected as usize,
            until as usize,
            0,
            libc::FUTEX_BITSET_MATCH_ANY as u32 as usize,
        ];
        loop {
            // SAFETY: the word is valid for the call, and so is the time.
            let answer = unsafe { call(libc::SYS_futex, &args) };
            if until.is_null() || answered(answer) != Err(libc::EINTR) {
                return;
            }
        }
    }

    /// Wakes up to `count` threads that wait on the word.
    ///
    /// The word is not read: it may have been given up and reused meanwhile,
    /// as long as its memory is still there (a slab's never goes away).
    #[inline(never)]
    pub fn wake(&self, count: u32) {
        // SAFETY: FUTEX_WAKE only uses the address as a key.
        unsafe {
            crate::system_call!(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                count.min(i32::MAX as u32),
            );
        }
    }
}

impl Deref for WaitWord {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        &self.0
    }
}
