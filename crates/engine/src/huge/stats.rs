//! Statistics of faults on huge pages, in the lines of document 001.

use super::mutexes::{FaultMutex, FaultMutexes};
use crate::Clock;
use crate::lock::{Mutex, MutexGuard, ReadGuard, RwSem, order};
use crate::stats::PerCpuCounter;
use sync::stat::Counter;

/// Counted as things happen; the common counts of faults by each processor for itself.
#[derive(Debug, Default)]
pub(super) struct HugeStats {
    pub(super) faults: PerCpuCounter,
    pub(super) waits: Counter,
    pub(super) wait_ns: Counter,
    pub(super) longest_ns: Counter,
    pub(super) filled: Counter,
    pub(super) around: PerCpuCounter,
    pub(super) shared: PerCpuCounter,
    pub(super) unshared: PerCpuCounter,
    pub(super) backed_out: Counter,
}

/// The statistics up to a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HugeSnapshot {
    /// Faults on huge pages.
    pub faults: u64,
    /// Locks that a fault found taken, and waited for.
    pub waits: u64,
    /// How long faults waited for locks, all together.
    pub wait_ns: u64,
    /// Faults that took their fault mutex, as document 001 counts them.
    pub locked: u64,
    /// Of `waits`, those for a fault mutex.
    pub mutex_waits: u64,
    /// The part of `wait_ns` that these took.
    pub mutex_wait_ns: u64,
    /// The longest that one fault waited for locks.
    pub longest_ns: u64,
    /// Pages that faults took from the pool.
    pub filled: u64,
    /// Pages that the file had, and that faults next to them have mapped.
    pub around: u64,
    /// Times that a mapping began to share a leaf which another one had, or had had.
    pub shared: u64,
    /// Times that a mapping dropped a leaf which it shared.
    pub unshared: u64,
    /// Times that truncate or hole punch found a share lock taken, and took the locks
    /// again in order.
    pub backed_out: u64,
}

impl HugeStats {
    pub(super) fn snapshot(&self, mutexes: &FaultMutexes) -> HugeSnapshot {
        let of_mutexes = |count: fn(&FaultMutex) -> u64| mutexes.all().map(count).sum();
        HugeSnapshot {
            faults: self.faults.get(),
            waits: self.waits.get(),
            wait_ns: self.wait_ns.get(),
            locked: of_mutexes(|mutex| mutex.locked.get()),
            mutex_waits: of_mutexes(|mutex| mutex.waits.get()),
            mutex_wait_ns: of_mutexes(|mutex| mutex.wait_ns.get()),
            longest_ns: self.longest_ns.get(),
            filled: self.filled.get(),
            around: self.around.get(),
            shared: self.shared.get(),
            unshared: self.unshared.get(),
            backed_out: self.backed_out.get(),
        }
    }
}

/// Takes the locks of one fault, and adds its waits up.
pub(super) struct Waits<'a> {
    stats: &'a HugeStats,
    clock: &'a dyn Clock,
    waited_ns: u64,
}

impl<'a> Waits<'a> {
    pub(super) fn new(stats: &'a HugeStats, clock: &'a dyn Clock) -> Self {
        Self {
            stats,
            clock,
            waited_ns: 0,
        }
    }

    pub(super) fn read<'b>(&mut self, lock: &'b RwSem) -> ReadGuard<'b> {
        match lock.try_read() {
            Some(guard) => guard,
            None => self.wait(|| lock.read()),
        }
    }

    pub(super) fn lock<'b, T, const RANK: u8>(
        &mut self,
        mutex: &'b Mutex<T, RANK>,
    ) -> MutexGuard<'b, T, RANK> {
        match mutex.try_lock() {
            Some(guard) => guard,
            None => self.wait(|| mutex.lock()),
        }
    }

    /// Counts beside it, on its line, which the fault has by then.
    pub(super) fn fault_mutex<'b>(
        &mut self,
        mutex: &'b FaultMutex,
    ) -> MutexGuard<'b, (), { order::FAULT_MUTEX }> {
        let guard = mutex.lock.try_lock().unwrap_or_else(|| {
            let before = self.waited_ns;
            let guard = self.wait(|| mutex.lock.lock());
            mutex.waits.add(1);
            mutex.wait_ns.add(self.waited_ns - before);
            guard
        });
        mutex.locked.add(1);
        guard
    }

    fn wait<G>(&mut self, take: impl FnOnce() -> G) -> G {
        let begin = self.clock.now_ns();
        let guard = take();
        let ns = self.clock.now_ns() - begin;
        self.waited_ns += ns;
        self.stats.waits.add(1);
        self.stats.wait_ns.add(ns);
        guard
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if self.waited_ns > 0 {
            self.stats.longest_ns.raise(self.waited_ns);
        }
    }
}
