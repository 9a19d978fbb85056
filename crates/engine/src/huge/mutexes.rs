//! The fault mutex table: two faults on one page do not both fill it, and none fills a
//! page that is being removed. Linux's `hugetlb_fault_mutex_table`.

use crate::lock::{Mutex, order};
use sync::stat::Counter;

/// On a line of its own: neighbours are different faults'.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct FaultMutex {
    pub(super) lock: Mutex<(), { order::FAULT_MUTEX }>,
    /// Faults that took it.
    pub(super) locked: Counter,
    /// Those that found it taken, and how long they waited.
    pub(super) waits: Counter,
    pub(super) wait_ns: Counter,
}

/// Mutexes by file and index; several pages may have the same.
#[derive(Debug)]
pub(super) struct FaultMutexes(Box<[FaultMutex]>);

impl FaultMutexes {
    /// So many, a power of two.
    pub(super) fn new(count: usize) -> Self {
        assert!(count.is_power_of_two(), "{count} fault mutexes");
        let mutex = |_| FaultMutex {
            lock: Mutex::ranked(()),
            locked: Counter::new(),
            waits: Counter::new(),
            wait_ns: Counter::new(),
        };
        Self((0..count).map(mutex).collect())
    }

    /// That of a page of a file.
    pub(super) fn of(&self, file: u64, index: u64) -> &FaultMutex {
        // Fibonacci hashing: files and indexes are small numbers in a row.
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let hash = (file.wrapping_mul(GOLDEN) ^ index).wrapping_mul(GOLDEN);
        let place = (hash >> 32) as usize & (self.0.len() - 1);
        &self.0[place]
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &FaultMutex> {
        self.0.iter()
    }
}
