//! The fair reader-writer lock itself: its word and its gates. A comer that has
//! to wait gets its turn as a value, and waits by itself; so each user counts and
//! times its waits in its own way ([`RwSem`](super::RwSem), the semaphore of a
//! VMA).
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
//!   63      62      48 47     33 32      18 17      3  2     1     0
//!  | woken | ticket   | writers | readers  | readers | phase | writer |
//!  |       | next in  | waiting | waiting  | inside  |       | inside |
//! ```
//!
//! A leaving thread hands the lock over *in that word*: the new owners are inside
//! before they wake up, and no thread can come between. Only then is their gate
//! opened and are they woken. The next grant of a kind needs the threads of the
//! last one to have gone through their gate and left, so a gate is at most one
//! grant behind the state, and never ahead of its waiters. "Behind" is why
//! a phase has four values: a reader of phase p may still find its gate at
//! p - 1, must wait there and at p, and goes at p + 1.

use sync::atomic::AtomicU64;
use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use sync::hint;
use sync::wait::WaitWord;

/// Threads of one kind that may be inside or wait: 15 bits.
pub(super) const FIELD: u64 = (1 << 15) - 1;

/// The most readers that can be inside.
pub const MOST_READERS: u64 = FIELD;

pub(super) const WRITER: u64 = 1;
/// Counts, modulo 4, the batches of waiting readers that were let in.
const PHASE: u64 = 1 << 1;
const PHASES: u64 = 4;
pub(super) const READER: u64 = 1 << 3;
pub(super) const WAITING_READER: u64 = 1 << 18;
pub(super) const WAITING_WRITER: u64 = 1 << 33;
pub(super) const TICKET: u64 = 1 << 48;
/// The first of the waiting writers was woken, to look: only where writers steal
/// ([`StealRwSem`](super::StealRwSem)).
pub(super) const WOKEN: u64 = 1 << 63;

pub(super) const fn field(state: u64, unit: u64) -> u64 {
    (state / unit) & FIELD
}

/// The phase after that of `state`.
pub(super) const fn next_phase(state: u64) -> u64 {
    (state / PHASE + 1) % PHASES
}

/// A fair reader-writer lock. Its waiting writers are spread over `WRITE_GATES`
/// words by their ticket, so that a grant wakes few that it is not for. Its
/// user has to leave by a call: there are no guards here.
pub struct RawRwSem<const WRITE_GATES: usize> {
    /// See the module's text.
    pub(super) state: AtomicU64,
    /// The phase that the last batch of waiting readers began.
    read_gate: WaitWord,
    /// Word `t % WRITE_GATES` holds the last ticket `t` granted there, plus 1.
    write_gates: [WaitWord; WRITE_GATES],
}

/// Why a reader that does not wait could not go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryReadError {
    /// A writer is inside or waits.
    Writer,
    /// As many readers are inside as may be.
    Full,
}

/// A comer that has to wait before it is inside.
#[derive(Debug)]
#[must_use]
pub struct RwsemWaiter<'a> {
    gate: &'a WaitWord,
    /// The value of the gate that lets this comer in.
    open: u32,
}

impl RwsemWaiter<'_> {
    /// Waits for it. The comer is inside then.
    pub fn wait(self) {
        let Self { gate, open } = self;
        // Acquire, here and below, pairs with the Release in `leave_write` and
        // in `open_write_gate`.
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
}

impl<const WRITE_GATES: usize> RawRwSem<WRITE_GATES> {
    /// A free lock.
    pub fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            read_gate: WaitWord::new(0),
            write_gates: core::array::from_fn(|_| WaitWord::new(0)),
        }
    }

    /// Goes in for reading, unless a writer is inside or came before: then returns the
    /// turn to wait for.
    pub fn read_or_queue(&self) -> Option<RwsemWaiter<'_>> {
        // Acquire pairs with the Release half of the last writer's leaving.
        // On failure nothing is read that it protects; but a waiting reader
        // goes in by its gate, and needs no more from here than the phase.
        let old = self.join(Acquire, |state| {
            match state & WRITER != 0 || field(state, WAITING_WRITER) != 0 {
                true => WAITING_READER,
                false => READER,
            }
        });
        if old & WRITER == 0 && field(old, WAITING_WRITER) == 0 {
            return None;
        }
        Some(RwsemWaiter {
            gate: &self.read_gate,
            open: next_phase(old) as u32,
        })
    }

    /// Goes in for reading if that needs no waiting and fewer than `most`
    /// readers are inside; `most` is at most [`MOST_READERS`].
    #[inline]
    pub fn try_read(&self, most: u64) -> Result<(), TryReadError> {
        let mut not_now = TryReadError::Writer;
        // Acquire as in `read_or_queue`.
        let entered = self.update(Acquire, |state| {
            if state & WRITER != 0 || field(state, WAITING_WRITER) != 0 {
                return None;
            }
            if field(state, READER) >= most {
                not_now = TryReadError::Full;
                return None;
            }
            Some(state + READER)
        });
        entered.map(drop).ok_or(not_now)
    }

    /// Goes in for writing if no thread is inside or waits; otherwise returns the turn to wait for.
    pub fn write_or_queue(&self) -> Option<RwsemWaiter<'_>> {
        // Acquire pairs with the Release half of the leaving of all that were
        // inside: readers' and writers' alike, each a read-modify-write.
        let old = self.join(Acquire, |state| match is_free(state) {
            true => WRITER,
            false => WAITING_WRITER,
        });
        if is_free(old) {
            return None;
        }
        let ticket = (field(old, TICKET) + field(old, WAITING_WRITER)) & FIELD;
        Some(RwsemWaiter {
            gate: self.write_gate(ticket),
            open: ticket as u32 + 1,
        })
    }

    /// Goes in for writing if nobody is inside or waits.
    pub fn try_write(&self) -> bool {
        // Acquire as in `write_or_queue`.
        let entered = self.update(Acquire, |state| is_free(state).then_some(state + WRITER));
        entered.is_some()
    }

    /// Readers inside now; old at once.
    pub fn readers(&self) -> u64 {
        field(self.state.load(Relaxed), READER)
    }

    /// True if a writer is inside now, or waits; old at once.
    pub fn has_writer(&self) -> bool {
        let state = self.state.load(Relaxed);
        state & WRITER != 0 || field(state, WAITING_WRITER) != 0
    }

    /// Readers that wait now; old at once.
    pub fn waiting_readers(&self) -> u64 {
        field(self.state.load(Relaxed), WAITING_READER)
    }

    /// Writers that wait now; old at once.
    pub fn waiting_writers(&self) -> u64 {
        field(self.state.load(Relaxed), WAITING_WRITER)
    }

    /// A reader leaves. The last access to the lock is a wake-up, which uses its
    /// address only and may come after others have given the lock up.
    #[inline]
    pub fn leave_read(&self) {
        if let Some(ticket) = self.read_left() {
            self.open_write_gate(ticket);
        }
    }

    /// A reader leaves: the ticket of the writer that it let in, whose gate is not
    /// open yet.
    #[inline]
    pub(super) fn read_left(&self) -> Option<u64> {
        // Release pairs with the Acquire of the next writer's coming. Acquire:
        // the last reader hands over to a waiting writer, which only meets this
        // thread's change of the gate; the work of the readers before has to be in it.
        let old = self.update(AcqRel, |state| {
            assert!(field(state, READER) > 0, "left without having entered");
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
        let is_last = field(old, READER) == 1 && field(old, WAITING_WRITER) > 0;
        is_last.then(|| field(old, TICKET))
    }

    /// A writer leaves; as `leave_read`.
    pub fn leave_write(&self) {
        // Release pairs with the Acquire of the next comer; waiters
        // meet this thread's change of their gate instead.
        let old = self.update(Release, |state| {
            assert!(state & WRITER != 0, "left without having entered");
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
            self.open_read_gate(old);
        } else if field(old, WAITING_WRITER) > 0 {
            self.open_write_gate(field(old, TICKET));
        }
    }

    /// Wakes the readers that were let in where the state was `old`.
    pub(super) fn open_read_gate(&self, old: u64) {
        // Release pairs with the Acquire in `RwsemWaiter::wait`.
        self.read_gate.swap(next_phase(old) as u32, Release);
        self.read_gate.wake(u32::MAX);
    }

    fn open_write_gate(&self, ticket: u64) {
        let gate = self.write_gate(ticket);
        // Release pairs with the Acquire in `RwsemWaiter::wait`.
        gate.swap(ticket as u32 + 1, Release);
        gate.wake(u32::MAX);
    }

    pub(super) fn write_gate(&self, ticket: u64) -> &WaitWord {
        &self.write_gates[ticket as usize % WRITE_GATES]
    }

    /// Counts a comer in, as one of the kind that `kind` says, and answers the state before. Where as many threads are counted as
    /// a field holds, 32,767, one more tries again.
    #[inline]
    pub(super) fn join(&self, order: sync::atomic::Ordering, kind: impl Fn(u64) -> u64) -> u64 {
        let join = |state| {
            let kind = kind(state);
            (kind == WRITER || field(state, kind) < FIELD).then(|| state + kind)
        };
        loop {
            if let Some(old) = self.update(order, join) {
                return old;
            }
            sync::thread::yield_now();
        }
    }

    /// Changes the state to the result of `change` and returns the state
    /// before; None if `change` returns none. `order` is that of the change.
    #[inline]
    pub(super) fn update(
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

impl<const WRITE_GATES: usize> Default for RawRwSem<WRITE_GATES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WRITE_GATES: usize> core::fmt::Debug for RawRwSem<WRITE_GATES> {
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
pub(super) fn grant_read(state: u64, waiting: u64) -> u64 {
    let rest = state & !((PHASES - 1) * PHASE);
    rest + next_phase(state) * PHASE - waiting * WAITING_READER + waiting * READER
}

/// The first of the waiting writers goes in.
pub(super) fn grant_write(state: u64) -> u64 {
    let next = (field(state, TICKET) + 1) & FIELD;
    let rest = state & !((FIELD * TICKET) | WOKEN);
    rest + next * TICKET - WAITING_WRITER + WRITER
}
