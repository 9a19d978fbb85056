//! The fair reader-writer lock with its statistics: what [`raw_rwsem`] says of
//! the lock, and how often and how long it was waited for.
//!
//! [`raw_rwsem`]: super::raw_rwsem

use sync::Arc;

use super::raw_rwsem::{MOST_READERS, NotNow, RawRwSem, Turn};
use super::wait_stats::WaitStats;
use crate::clock::Clock;

/// Enough that a grant rarely wakes a writer that it is not for.
const WRITE_GATES: usize = 16;

/// A fair reader-writer lock. It protects no value by itself.
pub struct RwSem {
    raw: RawRwSem<WRITE_GATES>,
    /// Immutable.
    clock: Arc<dyn Clock>,
    /// Acquisitions for reading.
    read_waits: WaitStats,
    /// Acquisitions for writing.
    write_waits: WaitStats,
}

impl RwSem {
    /// A free lock that takes the times of its waits from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            raw: RawRwSem::new(),
            clock,
            read_waits: WaitStats::new(),
            write_waits: WaitStats::new(),
        }
    }

    /// Waits until no writer is inside or came before, and goes in.
    pub fn read(&self) -> ReadGuard<'_> {
        wait_counted(self.raw.come_read(), &self.read_waits, &*self.clock);
        ReadGuard { sem: self }
    }

    /// Goes in for reading if that needs no waiting.
    pub fn try_read(&self) -> Option<ReadGuard<'_>> {
        match self.raw.try_read(MOST_READERS) {
            Ok(()) => {}
            Err(NotNow::Writer) => return None,
            Err(NotNow::Full) => panic!("too many readers"),
        }
        self.read_waits.record_uncontended();
        Some(ReadGuard { sem: self })
    }

    /// Waits until it is this writer's turn, and goes in alone.
    pub fn write(&self) -> WriteGuard<'_> {
        wait_counted(self.raw.come_write(), &self.write_waits, &*self.clock);
        WriteGuard { sem: self }
    }

    /// Goes in for writing if nobody is inside or waits.
    pub fn try_write(&self) -> Option<WriteGuard<'_>> {
        if !self.raw.try_write() {
            return None;
        }
        self.write_waits.record_uncontended();
        Some(WriteGuard { sem: self })
    }

    /// Readers that wait now; old at once.
    pub fn waiting_readers(&self) -> u64 {
        self.raw.waiting_readers()
    }

    /// Writers that wait now; old at once.
    pub fn waiting_writers(&self) -> u64 {
        self.raw.waiting_writers()
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
        self.raw.fmt(f)
    }
}

/// Waits for the turn, if there is one to wait for, and counts that in `waits`.
pub(crate) fn wait_counted(turn: Option<Turn<'_>>, waits: &WaitStats, clock: &dyn Clock) {
    let Some(turn) = turn else {
        waits.record_uncontended();
        return;
    };
    let begin = clock.now_ns();
    turn.wait();
    waits.record(clock.now_ns() - begin);
}

/// An [`RwSem`] held for reading.
#[derive(Debug)]
pub struct ReadGuard<'a> {
    sem: &'a RwSem,
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.sem.raw.leave_read();
    }
}

/// An [`RwSem`] held for writing.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    sem: &'a RwSem,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.sem.raw.leave_write();
    }
}
