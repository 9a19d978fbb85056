//! The events of a run: a number that tells two runs apart, and all events if
//! asked for.

use core::fmt;
use core::panic::Location;

pub use super::operation::Operation;

/// An operation that was executed.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// When, in picoseconds of virtual time.
    pub time_ps: u64,
    /// The thread, by the order of their starts.
    pub thread: u32,
    /// The CPU.
    pub cpu: u16,
    /// The event.
    pub operation: Operation,
    /// Its cache line, by first sight; 0 for none.
    pub line: u32,
    /// True if the value was zero, null or false, or an exchange failed.
    pub zero: bool,
    /// The place in the source.
    pub at: &'static Location<'static>,
}

/// Two events are the same if a digest could not tell them apart, and they are
/// of one place in the source.
impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.time_ps, self.thread, self.cpu, self.line, self.zero)
            == (
                other.time_ps,
                other.thread,
                other.cpu,
                other.line,
                other.zero,
            )
            && self.operation == other.operation
            && self.at == other.at
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>12}.{:03} ns  thread {:<4} cpu {:<4} {:<8} line {:<6} {} {}",
            self.time_ps / 1000,
            self.time_ps % 1000,
            self.thread,
            self.cpu,
            format!("{:?}", self.operation),
            self.line,
            if self.zero { '0' } else { '1' },
            super::hot::place_of(self.at)
        )
    }
}

/// A hash in which order counts.
#[derive(Debug, Clone, Copy)]
pub struct Digest(u64);

impl Digest {
    pub const fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    #[inline]
    pub fn add(&mut self, word: u64) {
        const ODD: u64 = 0xD6E8_FEB8_6659_FD93;
        let product = u128::from(self.0 ^ word) * u128::from(ODD);
        // Added, so that no state hides later events.
        self.0 = ((product as u64) ^ (product >> 64) as u64).wrapping_add(ODD);
    }

    pub fn value(self) -> u64 {
        self.0
    }
}
