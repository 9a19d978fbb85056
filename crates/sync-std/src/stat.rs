//! Counters for statistics: they order nothing and nobody decides by them, so
//! a model checker need not explore their interleavings.
//!
//! The simulator compiles this file over its own atomics: real counters are read-modify-writes of a line that others want
//! too. It names the caller's line in its reports, hence `track_caller`.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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
        // Most calls raise nothing: read first, and leave the line shared.
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

/// A number that is set under a lock, and read without it. It may be old: a reader that decides by it looks again under the
/// lock, or is right with any value.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Gauge(AtomicU32);

impl Gauge {
    /// A gauge at zero.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Sets the number. The caller has the lock.
    #[inline]
    #[track_caller]
    pub fn set(&self, n: u32) {
        self.0.store(n, Relaxed);
    }

    /// The number, now or of late.
    #[inline]
    #[track_caller]
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
