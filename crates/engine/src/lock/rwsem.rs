//! A fair reader-writer lock.
//!
//! Readers and writers take turns where both wait: a waiting writer stops new
//! readers, and a writer that leaves lets in all the readers that wait by then
//! before the next writer. So a reader waits for one writer at most, a writer
//! for one batch of readers and the writers that came before it; writers go in
//! the order of their coming. (The idea is that of phase-fair locks.)
//!
//! One 64-bit word holds the whole state and is changed by compare-and-swap:
//!
//! ```text
//!   62      48 47     33 32      18 17      3  2     1     0
//!  | ticket   | writers | readers  | readers | phase | writer |
//!  | next in  | waiting | waiting  | inside  |       | inside |
//! ```
//!
//! Who leaves hands the lock over *in that word*: the new owners are inside
//! before they wake up, and nobody can come between. Only then is their gate
//! opened and are they woken. The next grant of a kind needs the threads of the
//! last one to have gone through their gate and left, so a gate is at most one
//! grant behind the state, and never ahead of who waits at it. "Behind" is why
//! a phase has four values: a reader of phase p may still find its gate at
//! p - 1, must wait there and at p, and goes at p + 1.

use sync::Arc;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use sync::hint;
use sync::wait::WaitWord;

use super::wait_stats::WaitStats;
use crate::clock::Clock;

/// Threads of one kind that may be inside or wait: 15 bits.
const FIELD: u64 = (1 << 15) - 1;

const WRITER: u64 = 1;
/// Counts, modulo 4, the batches of waiting readers that were let in.
const PHASE: u64 = 1 << 1;
const PHASES: u64 = 4;
const READER: u64 = 1 << 3;
const WAITING_READER: u64 = 1 << 18;
const WAITING_WRITER: u64 = 1 << 33;
const TICKET: u64 = 1 << 48;

/// Waiting writers are spread over these words by their ticket, so that a
/// grant wakes few that it is not for.
const WRITE_GATES: usize = 16;

const fn field(state: u64, unit: u64) -> u64 {
    (state / unit) & FIELD
}

/// The phase after that of `state`.
const fn next_phase(state: u64) -> u64 {
    (state / PHASE + 1) % PHASES
}

/// A fair reader-writer lock. It protects no value by itself.
pub struct RwSem {
    /// See the module's text.
    state: AtomicU64,
    /// The phase that the last batch of waiting readers began.
    read_gate: WaitWord,
    /// Word `t % WRITE_GATES` holds the last ticket `t` granted there, plus 1.
    write_gates: [WaitWord; WRITE_GATES],
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
            state: AtomicU64::new(0),
            read_gate: WaitWord::new(0),
            write_gates: core::array::from_fn(|_| WaitWord::new(0)),
            clock,
            read_waits: WaitStats::new(),
            write_waits: WaitStats::new(),
        }
    }

    /// Waits until no writer is inside or came before, and goes in.
    pub fn read(&self) -> ReadGuard<'_> {
        // Acquire pairs with the Release half of the last writer's leaving.
        // On failure nothing is read that it protects; but a waiting reader
        // goes in by its gate, and needs no more from here than the phase.
        let old = self.update(Acquire, |state| {
            let come = if state & WRITER != 0 || field(state, WAITING_WRITER) != 0 {
                assert!(
                    field(state, WAITING_READER) < FIELD,
                    "too many readers wait"
                );
                WAITING_READER
            } else {
                assert!(field(state, READER) < FIELD, "too many readers");
                READER
            };
            Some(state + come)
        });
        let old = old.expect("a reader either enters or waits");
        if old & WRITER == 0 && field(old, WAITING_WRITER) == 0 {
            self.read_waits.record_uncontended();
        } else {
            let begin = self.clock.now_ns();
            // Acquire pairs with the Release in `leave_write`.
            pass(&self.read_gate, next_phase(old) as u32);
            self.read_waits.record(self.clock.now_ns() - begin);
        }
        ReadGuard { sem: self }
    }

    /// Goes in for reading if that needs no waiting.
    pub fn try_read(&self) -> Option<ReadGuard<'_>> {
        // Acquire as in `read`.
        self.update(Acquire, |state| {
            let free = state & WRITER == 0 && field(state, WAITING_WRITER) == 0;
            assert!(field(state, READER) < FIELD, "too many readers");
            free.then_some(state + READER)
        })?;
        self.read_waits.record_uncontended();
        Some(ReadGuard { sem: self })
    }

    /// Waits until it is this writer's turn, and goes in alone.
    pub fn write(&self) -> WriteGuard<'_> {
        // Acquire pairs with the Release half of the leaving of all who were
        // inside: readers' and writers' alike, each a read-modify-write.
        let old = self.update(Acquire, |state| {
            if is_free(state) {
                return Some(state + WRITER);
            }
            assert!(
                field(state, WAITING_WRITER) < FIELD,
                "too many writers wait"
            );
            Some(state + WAITING_WRITER)
        });
        let old = old.expect("a writer either enters or waits");
        if is_free(old) {
            self.write_waits.record_uncontended();
        } else {
            let begin = self.clock.now_ns();
            let ticket = (field(old, TICKET) + field(old, WAITING_WRITER)) & FIELD;
            // Acquire pairs with the Release in `open_write_gate`.
            pass(self.write_gate(ticket), ticket as u32 + 1);
            self.write_waits.record(self.clock.now_ns() - begin);
        }
        WriteGuard { sem: self }
    }

    /// Goes in for writing if nobody is inside or waits.
    pub fn try_write(&self) -> Option<WriteGuard<'_>> {
        // Acquire as in `write`.
        self.update(Acquire, |state| is_free(state).then_some(state + WRITER))?;
        self.write_waits.record_uncontended();
        Some(WriteGuard { sem: self })
    }

    /// Readers that wait now; old at once.
    pub fn waiting_readers(&self) -> u64 {
        field(self.state.load(Relaxed), WAITING_READER)
    }

    /// Writers that wait now; old at once.
    pub fn waiting_writers(&self) -> u64 {
        field(self.state.load(Relaxed), WAITING_WRITER)
    }

    /// The waits of readers.
    pub fn read_waits(&self) -> &WaitStats {
        &self.read_waits
    }

    /// The waits of writers.
    pub fn write_waits(&self) -> &WaitStats {
        &self.write_waits
    }

    fn leave_read(&self) {
        // Release pairs with the Acquire of the next writer's coming. Acquire:
        // the last reader hands over to a waiting writer, who only meets this
        // thread's change of the gate; what the readers before did has to be in it.
        let old = self.update(AcqRel, |state| {
            assert!(field(state, READER) > 0, "left what was not entered");
            let left = state - READER;
            Some(
                if field(left, READER) == 0 && field(left, WAITING_WRITER) > 0 {
                    grant_write(left)
                } else {
                    left
                },
            )
        });
        let old = old.expect("a reader inside can leave");
        if field(old, READER) == 1 && field(old, WAITING_WRITER) > 0 {
            self.open_write_gate(field(old, TICKET));
        }
    }

    fn leave_write(&self) {
        // Release pairs with the Acquire of whoever comes next; those who wait
        // meet this thread's change of their gate instead.
        let old = self.update(Release, |state| {
            assert!(state & WRITER != 0, "left what was not entered");
            let left = state - WRITER;
            let waiting = field(left, WAITING_READER);
            Some(if waiting > 0 {
                grant_read(left, waiting)
            } else if field(left, WAITING_WRITER) > 0 {
                grant_write(left)
            } else {
                left
            })
        });
        let old = old.expect("a writer inside can leave");
        if field(old, WAITING_READER) > 0 {
            // Release pairs with the Acquire in `read`.
            self.read_gate.swap(next_phase(old) as u32, Release);
            self.read_gate.wake(u32::MAX);
        } else if field(old, WAITING_WRITER) > 0 {
            self.open_write_gate(field(old, TICKET));
        }
    }

    fn open_write_gate(&self, ticket: u64) {
        let gate = self.write_gate(ticket);
        // Release pairs with the Acquire in `write`.
        gate.swap(ticket as u32 + 1, Release);
        gate.wake(u32::MAX);
    }

    fn write_gate(&self, ticket: u64) -> &WaitWord {
        &self.write_gates[ticket as usize % WRITE_GATES]
    }

    /// Changes the state to what `change` makes of it and returns the state
    /// before; None if `change` wants none. `order` is that of the change.
    #[inline]
    fn update(
        &self,
        order: sync::atomic::Ordering,
        mut change: impl FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
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

impl core::fmt::Debug for RwSem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("RwSem")
            .field("writer", &(state & WRITER != 0))
            .field("readers", &field(state, READER))
            .field("waiting_readers", &field(state, WAITING_READER))
            .field("waiting_writers", &field(state, WAITING_WRITER))
            .finish()
    }
}

/// True if a writer could go in at once.
fn is_free(state: u64) -> bool {
    state & WRITER == 0 && field(state, READER) == 0 && field(state, WAITING_WRITER) == 0
}

/// All the `waiting` readers go in.
fn grant_read(state: u64, waiting: u64) -> u64 {
    let rest = state & !((PHASES - 1) * PHASE);
    rest + next_phase(state) * PHASE - waiting * WAITING_READER + waiting * READER
}

/// The first of the waiting writers goes in.
fn grant_write(state: u64) -> u64 {
    let next = (field(state, TICKET) + 1) & FIELD;
    let rest = state & !(FIELD * TICKET);
    rest + next * TICKET - WAITING_WRITER + WRITER
}

/// Waits at `gate` until it holds `open`.
fn pass(gate: &WaitWord, open: u32) {
    // Acquire, here and below: see the callers.
    if hint::spin_until(|| gate.load(Acquire) == open) {
        return;
    }
    loop {
        let now = gate.load(Acquire);
        if now == open {
            return;
        }
        gate.wait(now, None);
    }
}

/// An [`RwSem`] held for reading.
#[derive(Debug)]
pub struct ReadGuard<'a> {
    sem: &'a RwSem,
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.sem.leave_read();
    }
}

/// An [`RwSem`] held for writing.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    sem: &'a RwSem,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.sem.leave_write();
    }
}
