//! The reader-writer lock that `mmap_lock` has by default: [`RawRwSem`], with its
//! phases, but a writer that runs may take the free lock before a writer that
//! sleeps. Linux's word for that is *to steal* the lock.
//!
//! Where writers hand the lock over, each change of owner is a change of threads.
//! Threads that map and unmap all the time soon do nothing else: a convoy. So a
//! writer that leaves, with writers waiting and no readers, hands the lock to
//! nobody. It leaves the lock free and wakes the first writer of the queue, which
//! looks, and sleeps again if a thief is inside.
//!
//! - **A reader** waits for one writer at most, as in [`RawRwSem`]: a writer that
//!   leaves lets all waiting readers in. A reader that finds the lock free, with
//!   writers waiting, goes in after the next writer, thief or not.
//! - **A writer** that is the first of the queue is passed by a fixed number of
//!   thieves at most: the last of them lets it in as it leaves. So does the last of
//!   the readers inside, at once.
//!
//! `WOKEN` in the state says that the first writer was woken and has not looked
//! since. While it is set, thieves come and go without a system call. The first
//! writer clears it in the step in which it sees somebody inside. Whoever is inside
//! then leaves later, sees it cleared, and wakes the writer again: no wake-up is
//! lost.
//!
//! A waiting writer learns from the state whether it is inside: its ticket is then
//! the one before the next. Its gate only counts wake-ups.

use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::hint;

use super::raw_rwsem::{
    FIELD, READER, RawRwSem, RwsemWaiter, TICKET, TryReadError, WAITING_READER, WAITING_WRITER,
    WOKEN, WRITER, field, grant_read, grant_write,
};

/// How often the first of the waiting writers may be passed beneath `mmap_lock`.
/// Measured: with 16 a convoy of eight threads is slower, with 256 the longest
/// waits are longer (docs/measurements.md).
pub const MOST_THEFTS: u32 = 64;

/// Enough that a wake-up rarely wakes a writer that it is not for.
const WRITE_GATES: usize = 16;

/// The lock. A thread that is inside has to leave: there are no guards here.
pub struct StealRwSem {
    /// The state, and the gates.
    raw: RawRwSem<WRITE_GATES>,
    /// Thieves since the first of the waiting writers is the first. Written by
    /// writers inside.
    thefts: AtomicU32,
    /// The most of them. Immutable.
    most_thefts: u32,
}

/// A writer in the queue.
#[derive(Debug)]
#[must_use]
pub struct StealWaiter<'a> {
    sem: &'a StealRwSem,
    ticket: u64,
}

impl StealWaiter<'_> {
    /// Waits for it. The writer is inside then.
    pub fn wait(self) {
        let Self { sem, ticket } = self;
        let gate = sem.raw.write_gate(ticket);
        loop {
            // Acquire pairs with the Release in `wake_writer`: after a wake-up is
            // counted here, the state that it was for is seen below.
            let seen = gate.load(Acquire);
            if sem.enters(ticket) {
                break;
            }
            gate.wait(seen, None);
        }
        sem.thefts.store(0, Relaxed);
    }
}

impl StealRwSem {
    /// A free lock, whose first waiting writer is passed `most_thefts` times at
    /// most.
    pub fn new(most_thefts: u32) -> Self {
        Self {
            raw: RawRwSem::new(),
            thefts: AtomicU32::new(0),
            most_thefts,
        }
    }

    /// Goes in for reading, unless a writer is inside or waits: then what to wait
    /// for.
    pub fn read_or_queue(&self) -> Option<RwsemWaiter<'_>> {
        self.raw.read_or_queue()
    }

    /// As [`RawRwSem::try_read`].
    pub fn try_read(&self, most: u64) -> Result<(), TryReadError> {
        self.raw.try_read(most)
    }

    /// Goes in for writing if nobody is inside or waits.
    pub fn try_write(&self) -> bool {
        self.raw.try_write()
    }

    /// Goes in for writing if nobody is inside; else what to wait for.
    pub fn write_or_queue(&self) -> Option<StealWaiter<'_>> {
        if self.raw.try_write() {
            return None;
        }
        self.steal_or_queue()
    }

    #[cold]
    fn steal_or_queue(&self) -> Option<StealWaiter<'_>> {
        let steal = |state| is_empty(state).then_some(state + WRITER);
        // Acquire, here and below, as in `RawRwSem::write_or_queue`.
        let mut stolen = None;
        hint::spin_until(|| {
            stolen = self.raw.update(Acquire, steal);
            stolen.is_some()
        });
        let steal_or_wait = |state| match is_empty(state) {
            true => WRITER,
            false => WAITING_WRITER,
        };
        let old = stolen.unwrap_or_else(|| self.raw.join(Acquire, steal_or_wait));
        let waiting = field(old, WAITING_WRITER);
        if is_empty(old) {
            if waiting > 0 {
                // Relaxed, here and elsewhere: writers inside alone use it.
                let thefts = self.thefts.load(Relaxed);
                self.thefts.store(thefts + 1, Relaxed);
            }
            return None;
        }
        Some(StealWaiter {
            sem: self,
            ticket: (field(old, TICKET) + waiting) & FIELD,
        })
    }

    /// True if the writer with this ticket is inside: it was let in, or goes in
    /// now. If not, it is woken when the lock is free for it.
    fn enters(&self, ticket: u64) -> bool {
        // Acquire, here and below, pairs with the Release half of the leaving of
        // all who were inside, as in `RawRwSem::write_or_queue`.
        let mut state = self.raw.state.load(Acquire);
        loop {
            if field(state, TICKET) != ticket {
                return field(state, TICKET) == (ticket + 1) & FIELD;
            }
            let is_empty = is_empty(state);
            let new = match is_empty {
                true => grant_write(state),
                false if state & WOKEN != 0 => state & !WOKEN,
                false => return false,
            };
            let swapped = self
                .raw
                .state
                .compare_exchange_weak(state, new, Acquire, Acquire);
            match swapped {
                Ok(_) => return is_empty,
                Err(now) => state = now,
            }
        }
    }

    /// Readers that wait now; old at once.
    pub fn waiting_readers(&self) -> u64 {
        self.raw.waiting_readers()
    }

    /// Writers that wait now; old at once.
    pub fn waiting_writers(&self) -> u64 {
        self.raw.waiting_writers()
    }

    /// A reader leaves. As with `RawRwSem`, the last access is a wake-up.
    #[inline]
    pub fn leave_read(&self) {
        if let Some(ticket) = self.raw.read_left() {
            self.wake_writer(ticket);
        }
    }

    /// A writer leaves; as `leave_read`.
    pub fn leave_write(&self) {
        let mut hands_over = false;
        // Release pairs with the Acquire of whoever comes next; readers that wait
        // meet this thread's change of their gate instead.
        let old = self.raw.update(Release, |state| {
            assert!(state & WRITER != 0, "left without having entered");
            let left = state - WRITER;
            let waiting = field(left, WAITING_READER);
            Some(if waiting > 0 {
                grant_read(left, waiting)
            } else if field(left, WAITING_WRITER) == 0 {
                left
            } else {
                hands_over = self.thefts.load(Relaxed) >= self.most_thefts;
                match hands_over {
                    true => grant_write(left),
                    false => left | WOKEN,
                }
            })
        });
        let old = old.expect("a writer inside can leave");
        if field(old, WAITING_READER) > 0 {
            self.raw.open_read_gate(old);
        } else if field(old, WAITING_WRITER) > 0 && (hands_over || old & WOKEN == 0) {
            self.wake_writer(field(old, TICKET));
        }
    }

    fn wake_writer(&self, ticket: u64) {
        let gate = self.raw.write_gate(ticket);
        // Release pairs with the Acquire in `StealWaiter::wait`.
        gate.fetch_add(1, Release);
        gate.wake(u32::MAX);
    }
}

impl core::fmt::Debug for StealRwSem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.raw.fmt(f)
    }
}

/// True if nobody is inside.
fn is_empty(state: u64) -> bool {
    state & WRITER == 0 && field(state, READER) == 0
}
