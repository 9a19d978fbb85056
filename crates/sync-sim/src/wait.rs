//! The waitable word: a futex of the simulated kernel.

use core::ops::Deref;

use crate::atomic::AtomicU32;
use crate::machine;

/// An `AtomicU32` that a thread can wait on. All atomic operations are there
/// by `Deref`; changing the word wakes nobody by itself.
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
    /// else. The look at the word and the sleep are one moment.
    #[track_caller]
    pub fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        if !machine::wait(self.0.inner(), expected, timeout_ns) {
            self.real().wait(expected, timeout_ns);
        }
    }

    /// Wakes up to `count` threads that wait on the word, in the order in which
    /// they came. The word is not read.
    #[track_caller]
    pub fn wake(&self, count: u32) {
        if !machine::wake(self.0.inner(), count) {
            self.real().wake(count);
        }
    }

    /// The same word, to the real kernel.
    fn real(&self) -> &softfault_sync_std::wait::WaitWord {
        // SAFETY: both are transparent around one `core` atomic of 32 bits.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }
}

impl Deref for WaitWord {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        &self.0
    }
}
