//! Rings: asynchronous reads of many stores, reaped by the threads that need
//! them. There is no thread of ours.
//!
//! # The threads
//!
//! ```text
//! submit   table lock: a slot for each read ── queue lock: one system call ── table lock: the kernel has them
//! reap     table lock: my read's slot ── nobody polls? ─► poll
//!                                     └─ somebody does ─► sleep on the slot's word
//! poll     (no lock) wait in the kernel for completions
//!          each: Complete::complete (no lock) ── table lock: free the slot, change
//!                its word ── wake all sleepers on it
//!          mine was among them, or time is up: table lock: stop polling, change
//!                the word of one slot that is waited for ── wake one sleeper on it
//! ```
//!
//! A store belongs to one ring from its opening on (round robin). So a waiter
//! knows where to look from the store alone, a ring's waiters are those whose
//! reads it carries, and a cookie needs no meaning. A ring of 256 reads keeps
//! any disk busy; several of them are for the locks' sake.
//!
//! # Why no wake-up is lost
//!
//! Everything below is decided under the table lock; the words only carry the
//! sleep. A thread that sleeps on a slot's word has counted itself as its waiter
//! and read the word under the lock, so any later change of it, also under the
//! lock, ends or prevents the sleep.
//!
//! 1. *Delivery*: freeing a slot changes its word and wakes all its waiters:
//!    exactly the threads that need this read.
//! 2. *The poller*: while no thread polls and some wait, a wake-up is under
//!    way to one waiter that will take the lock. The departing poller starts it
//!    in the same section in which it stops polling. A thread that takes the lock
//!    then either polls, or finds a poller, or leaves, and a thread that leaves
//!    while none polls passes the wake-up on to another. A newcomer that
//!    comes first polls, and the one woken sleeps again.
//!
//! Each completion thus wakes the threads that need it, and each departure one thread
//! more, however many wait. Time limits only let a waiter look at its pending
//! signals: nothing depends on them.
//!
//! # Rules for the caller
//!
//! - Locks: `ReadTable` and a queue's own, never together, neither held while
//!   `Complete` runs. `Complete` must not call `reap`.
//! - A slot is there before the kernel has its read, and the kernel may refuse it. Until that is known a waiter sleeps on the
//!   slot's word and does not poll: in the kernel it would wait for an answer that may never come.
//! - [`Reap::NotInFlight`](softfault_engine::store::Reap) may also mean *not
//!   yet*: the read's owner has marked the folio but not yet submitted. The
//!   caller then sleeps on the folio's own word, so an owner changes that word
//!   and wakes after `submit` as well as after a read of its own.
//! - Completed reads that nobody waits for stay in the ring, with their
//!   frames, until somebody reaps. Before submitting, poll.
//! - Rings belong to one engine: the poller delivers others' reads to its own
//!   `Complete`.
//! - The kernel gets the file to read from by a number, which the program may have given to
//!   another file (see [`Descriptor`](super::Descriptor)). It looks the number up while it
//!   takes the read. So each submission is proven afterwards: the number means the file,
//!   as it did before. Bytes that arrive of a submission that is not proven are discarded, and
//!   the thread that needs them reads them itself. Nor may the kernel wait for another file that the number means: such reads
//!   never wait, and reads that have to wait are submitted in the table that no close of the
//!   program reaches.
//! - Reads through the page cache are not in flight in the kernel, nor are reads that it would not have: see `park`. Such a read is a slot
//!   that its waiter takes and finishes, while others poll; a thread that finds its read so taken sleeps on
//!   its word and does not poll, and a wake-up to poll that came to it goes on to another.
//! - Memory orderings: all of the table by its lock. The words are changed by
//!   RMW with Relaxed; the kernel orders a change before its wake against the
//!   sleeper's check.

mod aio;
pub(crate) mod apart;
mod deadline;
#[cfg(test)]
mod held;
mod idle;
mod last_step;
mod on_demand;
mod park;
mod queue;
mod reap;
mod submit;
mod table;
#[cfg(test)]
mod tests;
mod uring;
mod writes;

use std::fmt;
use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use softfault_engine::lock::Mutex;
use softfault_engine::store::{Complete, NO_COOKIE};
use sync::wait::WaitWord;

use super::descriptor::Source;
use crate::generation::Owner;

use self::queue::Queue;
use self::table::ReadTable;

pub(crate) use self::last_step::{Finish, LastStep};
pub(crate) use self::on_demand::{Make, RingsOnDemand};
pub(crate) use self::table::Request;
pub(crate) use self::writes::{MOST_RUNS, Run, WriteQueue};

/// Reads in flight in one ring.
const ENTRIES: usize = 256;

/// The kernel's interface beneath a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// `io_uring`. Completions run in the context of the thread that
    /// submitted: they interrupt its `epoll_wait` and the like with EINTR.
    Uring,
    /// `io_submit(2)`. Direct reads only; needs no descriptors, and no thread
    /// notices the completions of another's reads, nor of its own.
    Aio,
}

/// Why there are no rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable {
    /// A requested read.
    pub kind: QueueKind,
    /// The errno of its set-up. EPERM or ENOSYS: closed by the administrator
    /// or the container; EAGAIN: the system's share is used up.
    pub errno: i32,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = match self.kind {
            QueueKind::Uring => "io_uring_setup",
            QueueKind::Aio => "io_setup",
        };
        write!(f, "{call}: {}", io::Error::from_raw_os_error(self.errno))
    }
}

impl std::error::Error for Unavailable {}

/// The rings of one engine.
#[derive(Debug)]
pub struct Rings {
    /// Immutable.
    rings: Vec<Ring>,
    /// Which ring the next store gets.
    next: AtomicUsize,
    /// Immutable. The kind of queue that the rings use.
    kind: QueueKind,
    /// Set in a child process, in which the rings are the parent's.
    forgotten: AtomicBool,
    /// Immutable. The process that made them.
    owner: Owner,
}

/// One ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Submitting is protected by the queue's own lock, collecting by polling.
    queue: Queue,
    /// The reads in flight, their waiters, and whether a thread polls.
    table: Mutex<ReadTable>,
    /// One for each slot: the word that its waiters sleep on. Changed under `table`.
    words: Box<[WaitWord]>,
    /// Immutable. It is the one of [`apart`]: nobody waits for a file in it.
    is_apart: bool,
}

impl Rings {
    /// As many rings as suit this machine: of `io_submit`, which interrupts
    /// nobody; of `io_uring` where that is closed or used up.
    pub fn new() -> Result<Self, Unavailable> {
        Self::of(QueueKind::Aio).or_else(|closed| Self::of(QueueKind::Uring).map_err(|_| closed))
    }

    /// As many rings as suit this machine, of this kind.
    pub fn of(kind: QueueKind) -> Result<Self, Unavailable> {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::with(kind, (2 * cpus).clamp(4, 16), ENTRIES)
    }

    /// `rings` rings of `entries` (1 to 256) reads in flight each.
    pub fn with(kind: QueueKind, rings: usize, entries: usize) -> Result<Self, Unavailable> {
        assert!(
            (1..=ENTRIES).contains(&entries),
            "a ring has 1 to 256 entries"
        );
        assert!(rings > 0, "at least one ring");
        let mut made = Self {
            rings: Vec::with_capacity(rings),
            next: AtomicUsize::new(0),
            kind,
            forgotten: AtomicBool::new(false),
            owner: Owner::here(),
        };
        for _ in 0..rings {
            // An error drops those that are made, and gives their queues back.
            let queue = Queue::new(kind, entries).map_err(|errno| Unavailable { kind, errno })?;
            made.rings.push(Ring::new(queue, entries));
        }
        Ok(made)
    }

    /// The kind of queue that the rings use.
    pub fn kind(&self) -> QueueKind {
        self.kind
    }

    /// To be called in a child process after fork, before anything else uses
    /// the rings there: from then on they start and deliver nothing, and the
    /// parent's reads stay the parent's.
    pub fn forget_in_child(&self) {
        // A child may have its parent's number, in a namespace of its own.
        // Relaxed: the child has one thread yet.
        if !self.forgotten.swap(true, Ordering::Relaxed) {
            for ring in &self.rings {
                ring.queue.close_in_child();
            }
        }
    }

    /// The ring for the next store.
    pub(crate) fn assign(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.rings.len()
    }

    /// None in a child.
    pub(crate) fn get(&self, index: usize) -> Option<&Ring> {
        (!self.forgotten.load(Ordering::Relaxed)).then(|| &self.rings[index])
    }

    /// Delivers the completed reads of all rings, without waiting.
    pub(crate) fn poll(&self, complete: &dyn Complete) {
        for ring in (0..self.rings.len()).filter_map(|index| self.get(index)) {
            ring.reap(NO_COOKIE, complete, 0);
        }
    }

    /// Whether reads through the page cache may be submitted: `io_submit`
    /// would do them on the spot.
    pub(crate) fn serves_buffered(&self) -> bool {
        self.kind == QueueKind::Uring
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // A child that was not told: its rings are the parent's all the same.
        if *self.forgotten.get_mut() || self.owner != Owner::here() {
            return;
        }
        for ring in &mut self.rings {
            ring.close();
        }
    }
}

impl Ring {
    fn new(queue: Queue, entries: usize) -> Self {
        Self {
            queue,
            table: Mutex::new(ReadTable::new(entries)),
            words: (0..entries).map(|_| WaitWord::new(0)).collect(),
            is_apart: false,
        }
    }

    /// A ring that belongs to no engine, of the first of these kinds that the kernel has for us.
    pub(crate) fn alone(kinds: &[QueueKind]) -> Option<Self> {
        let queue = |&kind| Queue::new(kind, ENTRIES).ok();
        kinds.iter().find_map(queue).map(Self::alone_with)
    }

    fn alone_with(queue: Queue) -> Self {
        Self {
            is_apart: true,
            ..Self::new(queue, ENTRIES)
        }
    }

    /// True if a read of this file is in flight.
    pub(crate) fn reads_from(&self, source: Source) -> bool {
        self.table.lock().reads_from(source)
    }

    /// Waits until the kernel is done with all buffers, and gives the queue
    /// up. Stores hold their rings, and a store is not dropped under its
    /// reads: so only a panic leaves something to wait for.
    fn close(&mut self) {
        let mut done = [queue::Done::NONE; queue::BATCH];
        loop {
            let mut table = self.table.lock();
            while let Some((slot, _)) = table.parked_from(0) {
                table.give_back(slot);
            }
            if table.is_empty() {
                break;
            }
            drop(table);
            // SAFETY: no other thread has the ring any more.
            let arrived = unsafe { self.queue.collect(&mut done, queue::PAUSE_NS) };
            table = self.table.lock();
            for done in &done[..arrived] {
                table.give_back(done.slot);
            }
        }
        // SAFETY: nothing is in flight, and this is the last use.
        unsafe { self.queue.close() };
    }
}
