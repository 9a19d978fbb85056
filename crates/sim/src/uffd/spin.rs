//! A spin lock of the kernel's, with its queue.
//!
//! A comer takes the lock's line, and so comes in the line's order; the moment of its
//! turn is computed and not played: a hundred threads that spin would cost
//! the simulation more than all else. They do use their processors meanwhile.

use crate::world;
use core::sync::atomic::{AtomicU64 as Plain, Ordering::Relaxed};
use softfault_engine::lock::WaitSnapshot;
use softfault_engine::lock::wait_stats::RANGE_ENDS_US;
use std::sync::{Mutex, PoisonError};
use sync::atomic::AtomicU64;

/// The lock.
#[derive(Debug)]
#[repr(align(64))]
pub struct SpinLock {
    /// Its line.
    word: AtomicU64,
    /// How long it is held each time. Immutable.
    hold_ns: u64,
    /// From a holder to the next spinner. Immutable.
    pass_ns: u64,
    /// When it is free. No line of its own.
    free_ns: Plain,
    waits: HostWaits,
}

impl SpinLock {
    /// One that is held for so long.
    pub fn new(hold_ns: u64, pass_ns: u64) -> Self {
        Self {
            word: AtomicU64::new(0),
            hold_ns,
            pass_ns,
            free_ns: Plain::new(0),
            waits: HostWaits::default(),
        }
    }

    /// Takes it and lets it go.
    pub fn take(&self) {
        self.word.fetch_add(1, sync::atomic::Ordering::AcqRel);
        let now = world::now_ns();
        let hold = world::work_time_ns(self.hold_ns);
        // Relaxed: threads of the machine are executed one after the other.
        let free = self.free_ns.load(Relaxed);
        let wait = match free > now {
            true => free - now + self.pass_ns,
            false => 0,
        };
        self.free_ns.store(now + wait + hold, Relaxed);
        self.waits.record(wait);
        world::spin_ns(wait);
        world::spin_ns(hold);
    }

    /// How often it was taken, and waited for.
    pub fn waits(&self) -> WaitSnapshot {
        self.waits.snapshot()
    }
}

/// Waits, counted beside the machine.
#[derive(Debug, Default)]
struct HostWaits(Mutex<WaitSnapshot>);

impl HostWaits {
    fn record(&self, wait_ns: u64) {
        let us = wait_ns / 1000;
        let range = RANGE_ENDS_US.iter().take_while(|&&end| us >= end).count();
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.count += 1;
        waits.total_ns += wait_ns;
        waits.max_ns = waits.max_ns.max(wait_ns);
        waits.ranges[range] += 1;
    }

    fn snapshot(&self) -> WaitSnapshot {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
