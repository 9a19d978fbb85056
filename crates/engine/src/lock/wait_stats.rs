//! How often and how long a lock was waited for: counts, total, longest, and a
//! histogram in the ranges of document 002.

use core::ops::Add;

use sync::stat::Counter;

/// Number of ranges in a histogram.
pub const RANGES: usize = 8;

/// Upper ends of the ranges in microseconds, exclusive; the last has none:
/// [0,1), [1,10), [10,100), ... [1000000, ...).
pub const RANGE_ENDS_US: [u64; RANGES - 1] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// Counts the acquisitions of one kind of lock. Only statistics: the numbers
/// of one snapshot need not belong to the same moment.
#[derive(Debug, Default)]
pub struct WaitStats {
    /// Acquisitions that found the lock free; they are in the first range.
    uncontended: Counter,
    /// Nanoseconds waited, in all.
    wait_total_ns: Counter,
    /// The longest wait in nanoseconds.
    wait_max_ns: Counter,
    /// Acquisitions that waited, by how long.
    ranges: [Counter; RANGES],
}

impl WaitStats {
    /// Statistics of nothing yet.
    pub const fn new() -> Self {
        Self {
            uncontended: Counter::new(),
            wait_total_ns: Counter::new(),
            wait_max_ns: Counter::new(),
            ranges: [const { Counter::new() }; RANGES],
        }
    }

    /// Counts an acquisition that waited for `wait_ns`.
    pub fn record(&self, wait_ns: u64) {
        self.wait_total_ns.add(wait_ns);
        self.wait_max_ns.raise(wait_ns);
        self.ranges[range_of(wait_ns)].add(1);
    }

    /// Counts an acquisition that did not wait.
    #[inline]
    pub fn record_uncontended(&self) {
        self.uncontended.add(1);
    }

    /// The numbers now.
    pub fn snapshot(&self) -> WaitSnapshot {
        let mut ranges: [u64; RANGES] = core::array::from_fn(|i| self.ranges[i].get());
        ranges[0] += self.uncontended.get();
        WaitSnapshot {
            count: ranges.iter().sum(),
            total_ns: self.wait_total_ns.get(),
            max_ns: self.wait_max_ns.get(),
            ranges,
        }
    }
}

/// The counts of [`WaitStats`] up to some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitSnapshot {
    /// Acquisitions.
    pub count: u64,
    /// Nanoseconds waited, in all.
    pub total_ns: u64,
    /// The longest wait in nanoseconds.
    pub max_ns: u64,
    /// Acquisitions by how long they waited; see [`RANGE_ENDS_US`].
    pub ranges: [u64; RANGES],
}

impl Add for WaitSnapshot {
    type Output = Self;

    /// The statistics of both together.
    fn add(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            total_ns: self.total_ns + other.total_ns,
            max_ns: self.max_ns.max(other.max_ns),
            ranges: core::array::from_fn(|i| self.ranges[i] + other.ranges[i]),
        }
    }
}

fn range_of(wait_ns: u64) -> usize {
    let us = wait_ns / 1_000;
    RANGE_ENDS_US
        .iter()
        .position(|&end| us < end)
        .unwrap_or(RANGES - 1)
}
