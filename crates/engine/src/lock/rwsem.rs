//! A reader-writer lock with its statistics: the fair lock of [`raw_rwsem`], that
//! of [`steal_rwsem`] or Linux's of [`queued_rwsem`], with the number and the time
//! of its waits.
//!
//! [`raw_rwsem`]: super::raw_rwsem
//! [`steal_rwsem`]: super::steal_rwsem
//! [`queued_rwsem`]: super::queued_rwsem

use sync::Arc;

use super::queued_rwsem::{QueuedRwSem, ReadWaiter, WriteWaiter};
use super::raw_rwsem::{MOST_READERS, RawRwSem, RwsemWaiter, TryReadError};
use super::steal_rwsem::{MOST_THEFTS, StealRwSem, StealWaiter};
use super::wait_stats::WaitStats;
use crate::clock::Clock;
use crate::policy::MmapQueue;

/// Enough that a grant rarely wakes a writer that it is not for.
const WRITE_GATES: usize = 16;

/// A reader-writer lock. It protects no value by itself.
pub struct RwSem {
    raw: Raw,
    /// Immutable.
    clock: Arc<dyn Clock>,
    /// Acquisitions for reading.
    read_waits: WaitStats,
    /// Acquisitions for writing.
    write_waits: WaitStats,
}

/// The lock itself.
enum Raw {
    /// Fair.
    PhaseFair(RawRwSem<WRITE_GATES>),
    /// Fair to readers, and after some thefts to writers.
    Steal(StealRwSem),
    /// Linux's.
    Queued(QueuedRwSem),
}

impl RwSem {
    /// A free lock, a fair one, that takes the times of its waits from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_queue(clock, MmapQueue::PhaseFair)
    }

    /// The same, where comers wait in this order.
    pub fn with_queue(clock: Arc<dyn Clock>, queue: MmapQueue) -> Self {
        Self {
            raw: match queue {
                MmapQueue::PhaseFair => Raw::PhaseFair(RawRwSem::new()),
                MmapQueue::Steal => Raw::Steal(StealRwSem::new(MOST_THEFTS)),
                MmapQueue::Linux => Raw::Queued(QueuedRwSem::new()),
            },
            clock,
            read_waits: WaitStats::new(),
            write_waits: WaitStats::new(),
        }
    }

    /// Waits until no writer is inside or has to come first, and goes in.
    pub fn read(&self) -> ReadGuard<'_> {
        match &self.raw {
            Raw::PhaseFair(raw) => {
                let waiter = raw.read_or_queue();
                wait_counted(waiter, RwsemWaiter::wait, &self.read_waits, self.clock());
            }
            Raw::Steal(raw) => {
                let waiter = raw.read_or_queue();
                wait_counted(waiter, RwsemWaiter::wait, &self.read_waits, self.clock());
            }
            Raw::Queued(raw) => {
                let waiter = raw.read_or_queue(self.clock());
                wait_counted(waiter, ReadWaiter::wait, &self.read_waits, self.clock());
            }
        }
        ReadGuard { sem: self }
    }

    /// Goes in for reading if that needs no waiting.
    pub fn try_read(&self) -> Option<ReadGuard<'_>> {
        let entered = match &self.raw {
            Raw::PhaseFair(raw) => is_inside(raw.try_read(MOST_READERS)),
            Raw::Steal(raw) => is_inside(raw.try_read(MOST_READERS)),
            Raw::Queued(raw) => raw.try_read(),
        };
        if !entered {
            return None;
        }
        self.read_waits.record_uncontended();
        Some(ReadGuard { sem: self })
    }

    /// Waits until it is this writer's turn, and goes in alone.
    pub fn write(&self) -> WriteGuard<'_> {
        match &self.raw {
            Raw::PhaseFair(raw) => {
                let waiter = raw.write_or_queue();
                wait_counted(waiter, RwsemWaiter::wait, &self.write_waits, self.clock());
            }
            Raw::Steal(raw) => {
                let waiter = raw.write_or_queue();
                wait_counted(waiter, StealWaiter::wait, &self.write_waits, self.clock());
            }
            Raw::Queued(raw) => {
                let waiter = raw.write_or_queue(self.clock());
                let wait = |waiter: WriteWaiter<'_>| waiter.wait(self.clock());
                wait_counted(waiter, wait, &self.write_waits, self.clock());
            }
        }
        WriteGuard { sem: self }
    }

    /// Goes in for writing if nobody is inside or waits.
    pub fn try_write(&self) -> Option<WriteGuard<'_>> {
        let entered = match &self.raw {
            Raw::PhaseFair(raw) => raw.try_write(),
            Raw::Steal(raw) => raw.try_write(),
            Raw::Queued(raw) => raw.try_write(),
        };
        if !entered {
            return None;
        }
        self.write_waits.record_uncontended();
        Some(WriteGuard { sem: self })
    }

    /// Ends what [`WriteGuard::leave_held`] has left.
    pub(crate) fn leave_write(&self) {
        match &self.raw {
            Raw::PhaseFair(raw) => raw.leave_write(),
            Raw::Steal(raw) => raw.leave_write(),
            Raw::Queued(raw) => raw.leave_write(self.clock()),
        }
    }

    /// Readers that wait now; old at once.
    pub fn waiting_readers(&self) -> u64 {
        match &self.raw {
            Raw::PhaseFair(raw) => raw.waiting_readers(),
            Raw::Steal(raw) => raw.waiting_readers(),
            Raw::Queued(raw) => raw.waiting_readers(),
        }
    }

    /// Writers that wait now; old at once.
    pub fn waiting_writers(&self) -> u64 {
        match &self.raw {
            Raw::PhaseFair(raw) => raw.waiting_writers(),
            Raw::Steal(raw) => raw.waiting_writers(),
            Raw::Queued(raw) => raw.waiting_writers(),
        }
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The waits of readers.
    pub fn read_waits(&self) -> &WaitStats {
        &self.read_waits
    }

    /// The waits of writers.
    pub fn write_waits(&self) -> &WaitStats {
        &self.write_waits
    }
}

impl core::fmt::Debug for RwSem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.raw {
            Raw::PhaseFair(raw) => raw.fmt(f),
            Raw::Steal(raw) => raw.fmt(f),
            Raw::Queued(raw) => raw.fmt(f),
        }
    }
}

/// True if a reader that does not wait is inside now.
fn is_inside(tried: Result<(), TryReadError>) -> bool {
    match tried {
        Ok(()) => true,
        Err(TryReadError::Writer) => false,
        Err(TryReadError::Full) => panic!("too many readers"),
    }
}

/// Waits for the turn by `wait`, if there is one to wait for, and counts that in `waits`.
pub(crate) fn wait_counted<T>(
    waiter: Option<T>,
    wait: impl FnOnce(T),
    waits: &WaitStats,
    clock: &dyn Clock,
) {
    let Some(waiter) = waiter else {
        waits.record_uncontended();
        return;
    };
    let begin = clock.now_ns();
    wait(waiter);
    waits.record(clock.now_ns() - begin);
}

/// An [`RwSem`] held for reading.
#[derive(Debug)]
pub struct ReadGuard<'a> {
    sem: &'a RwSem,
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        match &self.sem.raw {
            Raw::PhaseFair(raw) => raw.leave_read(),
            Raw::Steal(raw) => raw.leave_read(),
            Raw::Queued(raw) => raw.leave_read(self.sem.clock()),
        }
    }
}

/// An [`RwSem`] held for writing.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    sem: &'a RwSem,
}

impl WriteGuard<'_> {
    /// Leaves the lock held, until [`RwSem::leave_write`]: for a holder that has the lock's owner with it, and so cannot
    /// borrow of it.
    pub(crate) fn leave_held(self) {
        core::mem::forget(self);
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.sem.leave_write();
    }
}
