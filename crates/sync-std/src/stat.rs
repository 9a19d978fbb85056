//! Counters for statistics: they order nothing and nobody decides by them, so
//! a model checker need not explore their interleavings.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Sets these bits, of a number that nobody adds to.
    #[inline]
    pub fn set(&self, bits: u64) {
        // Most set nothing: read first, and leave the line shared.
        if self.0.load(Relaxed) & bits != bits {
            self.0.fetch_or(bits, Relaxed);
        }
    }

    /// Raises the counter to `n` if it is below.
    #[inline]
    pub fn raise(&self, n: u64) {
        // Most calls raise nothing: read first, and leave the line shared.
        if self.0.load(Relaxed) < n {
            self.0.fetch_max(n, Relaxed);
        }
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
