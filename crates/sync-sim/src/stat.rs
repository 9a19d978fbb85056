//! Counters for statistics. Real ones are read-modify-writes of a line that
//! others want too, and so they are here.

use crate::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that many threads add to and some read, without any ordering.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`.
    #[inline]
    #[track_caller]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Sets these bits, of a number that nobody adds to.
    #[inline]
    #[track_caller]
    pub fn set(&self, bits: u64) {
        // Most set nothing: read first, and leave the line shared.
        if self.0.load(Relaxed) & bits != bits {
            self.0.fetch_or(bits, Relaxed);
        }
    }

    /// Raises the counter to `n` if it is below.
    #[inline]
    #[track_caller]
    pub fn raise(&self, n: u64) {
        if self.0.load(Relaxed) < n {
            self.0.fetch_max(n, Relaxed);
        }
    }

    /// The value now.
    #[inline]
    #[track_caller]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
