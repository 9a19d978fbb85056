//! The reader-writer lock that Linux has beneath `mmap_lock`, as a baseline: one
//! queue for readers and writers, in the order of their coming.
//!
//! - **A reader that has to wait** waits for every writer that is in the queue
//!   before it. Once the first in the queue is a reader, *all* readers in the
//!   queue go in, those behind further writers too.
//! - **A writer that has to wait** is woken when it is the first and the lock is
//!   free. It is not inside then: any thread may have taken the lock
//!   ("stolen" it), and the writer sleeps again.
//! - **Hand-off**: a first in the queue that finds the lock stolen after 4 ms in
//!   the queue sets a flag, and from then on no thread steals.
//! - **Writers spin** for a moment before they queue. Linux lets them spin for as
//!   long as the owner runs on a processor; whether it runs is not known here, so
//!   this is the façade's short spin.
//!
//! Linux lets in 256 waiting readers at a time; here it is all of them. A reader
//! may steal the lock where it is free, as in Linux.
//!
//! The word that comers look at:
//!
//! ```text
//!   31       3     2         1        0
//!  | readers  | handoff | waiters | writer |
//!  | inside   |         |         | inside |
//! ```
//!
//! `waiters` says that the queue is not empty. It is set under the queue's lock, by
//! a comer that sees in the same step that another is inside, and that one wakes
//! the first in the queue when it leaves. The queue itself is a few counts: since
//! readers go in together, it only has to be known how many writers are before the
//! first of them.

use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::hint;
use sync::wait::WaitWord;

use super::mutex::{Mutex, MutexGuard};
use crate::clock::Clock;

const WRITER: u32 = 1;
const WAITERS: u32 = 2;
const HANDOFF: u32 = 4;
const READER: u32 = 8;

/// How long the first in the queue may be passed by.
pub const HANDOFF_NS: u64 = 4_000_000;

/// Enough that a wake-up rarely wakes a writer that it is not for.
const WRITE_GATES: usize = 16;

/// The lock. Its user has to leave by a call: there are no guards here.
pub struct QueuedRwSem {
    /// See the module's text. `WAITERS` and `HANDOFF` change under `queue` only.
    state: AtomicU32,
    /// The waiting readers and writers.
    queue: Mutex<Queue>,
    /// Counts the batches of readers that were let in. Changed under `queue`.
    read_gate: WaitWord,
    /// Word `t % WRITE_GATES` counts the wake-ups of writers with such tickets `t`.
    /// Changed under `queue`.
    write_gates: [WaitWord; WRITE_GATES],
}

/// The waiting readers and writers: how many, and as much of their order as decides which of them go in next.
#[derive(Debug, Default)]
struct Queue {
    /// Readers.
    readers: u32,
    /// When the first of them came. Means nothing without one.
    readers_since: u64,
    /// Writers.
    writers: u32,
    /// Those of them that came before the first reader. Means nothing without one.
    writers_ahead: u32,
    /// The ticket of the first writer; the others have the next ones.
    ticket: u32,
}

impl Queue {
    /// True if the first is a reader.
    fn is_readers_turn(&self) -> bool {
        self.readers > 0 && self.writers_ahead == 0
    }
}

/// A reader in the queue.
#[derive(Debug)]
#[must_use]
pub struct ReadWaiter<'a> {
    sem: &'a QueuedRwSem,
    /// The value of the gate until the reader is let in.
    closed: u32,
}

impl ReadWaiter<'_> {
    /// Waits for it. The reader is inside then.
    pub fn wait(self) {
        let gate = &self.sem.read_gate;
        // Acquire pairs with the Release in `wake_first`.
        while gate.load(Acquire) == self.closed {
            gate.wait(self.closed, None);
        }
    }
}

/// A writer in the queue.
#[derive(Debug)]
#[must_use]
pub struct WriteWaiter<'a> {
    sem: &'a QueuedRwSem,
    ticket: u32,
    /// When it came.
    since: u64,
    /// The value of its gate when it last looked.
    seen: u32,
}

impl WriteWaiter<'_> {
    /// Waits for it. The writer is inside then.
    pub fn wait(mut self, clock: &dyn Clock) {
        let gate = self.sem.write_gate(self.ticket);
        loop {
            gate.wait(self.seen, None);
            let mut queue = self.sem.queue.lock();
            let late = clock.now_ns() - self.since >= HANDOFF_NS;
            if self.sem.write_if_first(&mut queue, self.ticket, late) {
                return;
            }
            // Relaxed, under the queue's lock: a wake-up after this look changes it.
            self.seen = gate.load(Relaxed);
        }
    }
}

impl QueuedRwSem {
    /// A free lock.
    pub fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            queue: Mutex::new(Queue::default()),
            read_gate: WaitWord::new(0),
            write_gates: core::array::from_fn(|_| WaitWord::new(0)),
        }
    }

    /// Goes in for reading, or into the queue.
    #[inline]
    pub fn read_or_queue(&self, clock: &dyn Clock) -> Option<ReadWaiter<'_>> {
        if self.try_read() {
            return None;
        }
        self.steal_read_or_queue(clock)
    }

    /// Goes in for reading if no writer is inside and nobody waits.
    #[inline]
    pub fn try_read(&self) -> bool {
        // Acquire pairs with the Release in `leave_write`.
        let enter = |state| (state & (WRITER | WAITERS) == 0).then_some(state + READER);
        self.update(Acquire, enter).is_some()
    }

    #[cold]
    fn steal_read_or_queue(&self, clock: &dyn Clock) -> Option<ReadWaiter<'_>> {
        // Acquire, here and below, as in `try_read`.
        let steal = |state| (state & !WAITERS == 0).then_some(state + READER);
        if self.update(Acquire, steal).is_some() {
            return None;
        }
        let mut queue = self.queue.lock();
        let old = self.update(Acquire, |state| {
            Some(match state & (WRITER | WAITERS) {
                0 => state + READER,
                _ => state | WAITERS,
            })
        });
        let old = old.expect("a reader either enters or waits");
        if old & (WRITER | WAITERS) == 0 {
            return None;
        }
        if queue.readers == 0 {
            queue.writers_ahead = queue.writers;
            queue.readers_since = clock.now_ns();
        }
        queue.readers += 1;
        Some(ReadWaiter {
            sem: self,
            // Relaxed: it changes under the queue's lock.
            closed: self.read_gate.load(Relaxed),
        })
    }

    /// Goes in for writing, or into the queue.
    #[inline]
    pub fn write_or_queue(&self, clock: &dyn Clock) -> Option<WriteWaiter<'_>> {
        if self.try_write() {
            return None;
        }
        self.steal_write_or_queue(clock)
    }

    /// Goes in for writing if nobody is inside or waits.
    #[inline]
    pub fn try_write(&self) -> bool {
        // Acquire pairs with the Release in `leave_read` and `leave_write`: all
        // changes of the state are read-modify-writes, so that it reaches every
        // reader that has left.
        let enter = |state| (state == 0).then_some(WRITER);
        self.update(Acquire, enter).is_some()
    }

    #[cold]
    fn steal_write_or_queue(&self, clock: &dyn Clock) -> Option<WriteWaiter<'_>> {
        // Acquire, here and below, as in `try_write`.
        let steal = |state| (state & !WAITERS == 0).then_some(state | WRITER);
        if hint::spin_until(|| self.update(Acquire, steal).is_some()) {
            return None;
        }
        let mut queue = self.queue.lock();
        let old = self.update(Acquire, |state| steal(state).or(Some(state | WAITERS)));
        let old = old.expect("a writer either enters or waits");
        if steal(old).is_some() {
            return None;
        }
        let ticket = queue.ticket.wrapping_add(queue.writers);
        queue.writers += 1;
        Some(WriteWaiter {
            sem: self,
            ticket,
            since: clock.now_ns(),
            // Relaxed: it changes under the queue's lock.
            seen: self.write_gate(ticket).load(Relaxed),
        })
    }

    /// The writer with this ticket goes in if it is the first in the queue and the
    /// lock is free. Where it is not, and the writer is `late`, nobody steals the
    /// lock again.
    fn write_if_first(&self, queue: &mut MutexGuard<'_, Queue>, ticket: u32, late: bool) -> bool {
        if queue.ticket != ticket || queue.is_readers_turn() {
            return false;
        }
        let is_last = queue.writers == 1 && queue.readers == 0;
        let free = |state| state & !(WAITERS | HANDOFF) == 0;
        // Acquire as in `try_write`.
        let old = self.update(Acquire, |state| match free(state) {
            true if is_last => Some(WRITER),
            true => Some(WAITERS | WRITER),
            false => late.then_some(state | HANDOFF),
        });
        if !old.is_some_and(free) {
            return false;
        }
        queue.ticket = queue.ticket.wrapping_add(1);
        queue.writers -= 1;
        queue.writers_ahead = queue.writers_ahead.saturating_sub(1);
        true
    }

    /// Readers that wait now; old at once.
    pub fn waiting_readers(&self) -> u64 {
        self.queue.lock().readers.into()
    }

    /// Writers that wait now; old at once.
    pub fn waiting_writers(&self) -> u64 {
        self.queue.lock().writers.into()
    }

    /// True if only the first in the queue may go in now; old at once.
    pub fn hands_off(&self) -> bool {
        self.state.load(Relaxed) & HANDOFF != 0
    }

    /// A reader leaves.
    #[inline]
    pub fn leave_read(&self, clock: &dyn Clock) {
        // Release pairs with the Acquire of the next writer's coming.
        let old = self.state.fetch_sub(READER, Release);
        assert!(old >= READER, "left without having entered");
        self.left(old - READER, clock);
    }

    /// A writer leaves.
    #[inline]
    pub fn leave_write(&self, clock: &dyn Clock) {
        // Release pairs with the Acquire of the next comer.
        let old = self.state.fetch_sub(WRITER, Release);
        assert!(old & WRITER != 0, "left without having entered");
        self.left(old - WRITER, clock);
    }

    /// The thread that left it free wakes the first in the queue.
    #[inline]
    fn left(&self, state: u32, clock: &dyn Clock) {
        if state & !HANDOFF == WAITERS {
            self.wake_first(clock);
        }
    }

    #[cold]
    fn wake_first(&self, clock: &dyn Clock) {
        let mut queue = self.queue.lock();
        let gate = if queue.is_readers_turn() {
            if !self.let_readers_in(&queue, clock) {
                return;
            }
            queue.readers = 0;
            // Release pairs with the Acquire in `ReadWaiter::wait`.
            self.read_gate.fetch_add(1, Release);
            &self.read_gate
        } else if queue.writers > 0 {
            let gate = self.write_gate(queue.ticket);
            // Relaxed: looked at under the queue's lock, which the writer takes too.
            gate.fetch_add(1, Relaxed);
            gate
        } else {
            return;
        };
        drop(queue);
        gate.wake(u32::MAX);
    }

    /// Lets all waiting readers in, the first of which is the first in the queue,
    /// unless a writer has stolen the lock: it wakes them when it leaves.
    fn let_readers_in(&self, queue: &Queue, clock: &dyn Clock) -> bool {
        let late = clock.now_ns() - queue.readers_since >= HANDOFF_NS;
        let waiters = if queue.writers > 0 { WAITERS } else { 0 };
        let enter = queue.readers * READER;
        // Acquire as in `try_read`: somebody may have been inside since this thread
        // left, and the readers only meet this thread's change of their gate.
        let old = self.update(Acquire, |state| match state & WRITER {
            0 => Some((state & !(WAITERS | HANDOFF) | waiters) + enter),
            _ => late.then_some(state | HANDOFF),
        });
        old.is_some_and(|old| old & WRITER == 0)
    }

    fn write_gate(&self, ticket: u32) -> &WaitWord {
        &self.write_gates[ticket as usize % WRITE_GATES]
    }

    /// Changes the state; returns the state before, or None if `change` has none.
    #[inline]
    fn update(
        &self,
        order: sync::atomic::Ordering,
        change: impl Fn(u32) -> Option<u32>,
    ) -> Option<u32> {
        // A stale value only makes the first attempt fail.
        let mut state = self.state.load(Relaxed);
        loop {
            let new = change(state)?;
            match self.state.compare_exchange_weak(state, new, order, Relaxed) {
                Ok(old) => return Some(old),
                Err(now) => state = now,
            }
        }
    }
}

impl Default for QueuedRwSem {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for QueuedRwSem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("QueuedRwSem")
            .field("writer", &(state & WRITER != 0))
            .field("readers", &(state / READER))
            .field("waiters", &(state & WAITERS != 0))
            .field("handoff", &(state & HANDOFF != 0))
            .finish()
    }
}
