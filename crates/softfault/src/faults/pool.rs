//! The threads that serve faults, and their roles.
//!
//! ```text
//!   idle ──► reads messages, many at a time ──► each fault is begun
//!     ▲          ▲                                ├─ ended: its thread is woken
//!     │          │                                ├─ needs a read: handed to a ring ──┐
//!     │          └── more ────────────────────────┤                                   │
//!     │                                           └─ a thread has to wait for it      │
//!     │     another thread reads on: an idle one, or the next that is;                │
//!     └──── messages read and not begun are left to them; this one waits               │
//!                                                                                     ▼
//!   one thread more: takes completions of the ring  ──► the fault goes on ──► ended, another read,
//!                                                                             or left to an idle thread
//! ```
//!
//! A thread that only began reads has slept in none of them. So most faults on files cost the pool no change of threads of their
//! own: many messages come by one call, many reads are begun by one and arrive by one.
//!
//! Serving waits for disks and for memory, and reads that were begun have the thread of the ring, which waits besides only for reclaim by
//! others. But a read that is waited for may want the lock of a file, which a thread has that sleeps in a fault itself, in write(2): its
//! message may not have been read yet, or be left. So no thread waits in a fault unless another one reads messages and one more is idle,
//! or is started before, up to a bound. This uses the heap, which for that reason cannot be in a map of ours. Where threads cannot be had, a
//! pool of few is slow.

use super::begin::{self, Batch, MessageReaderStart};
use super::last_messages::LastMessages;
use super::raise;
use super::under_way::{Held, Places, Touch, UnderWay};
use crate::process::Process;
use crate::signal;
use crate::store::apart;
use crate::thread::{self, Stacks};
use crate::uffd::{Faults, Poisoned};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Outcome, StartedFault};
use softfault_engine::stage::Stage;
use softfault_engine::store::{Complete, StoreError};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use sync::stage;

/// Threads at first: one reads while the other serves.
const FIRST: usize = 2;
/// Threads at most, but for that of the ring: faults that a thread waits in.
const MOST: usize = 64;
/// A thread's stack. Serving needs 3 KiB, a batch of messages 4, libc and the standard library some more.
const STACK: usize = 64 << 10;
/// How long the thread of the ring sleeps at most, in nanoseconds.
const LONG: u64 = 60_000_000_000;

/// The threads of a process. A child of fork has its own.
pub(super) struct ServingThreads {
    state: Mutex<PoolState>,
    /// Nobody reads any more, or a fault was left.
    wanted: Condvar,
    pub(super) asked: LastMessages,
    /// Threads of ours that are serving, by the kernel's numbers; 0 for none. The last is the ring's.
    serving: [AtomicU32; MOST + 1],
    pub(super) under_way: UnderWay,
}

#[derive(Default)]
struct PoolState {
    threads: usize,
    /// Started, and in no role yet.
    starting: usize,
    idle: usize,
    /// Idle threads that were called and have not come yet.
    called: usize,
    reading: bool,
    /// How the next reader begins.
    start: MessageReaderStart,
    /// A thread more would have had something to do.
    short: bool,
    /// Faults that are left to idle threads, in order.
    left: Places,
}

/// Of the pool's threads, by place. Where the system has no address space for them, the C library maps each.
fn stacks() -> Option<&'static Stacks> {
    /// A child of fork has none of the threads, and begins its own on the same stacks.
    static STACKS: OnceLock<Option<Stacks>> = OnceLock::new();
    (STACKS.get_or_init(|| Stacks::reserve(MOST, STACK))).as_ref()
}

/// The next role of an idle thread.
enum Role {
    Read,
    Serve(u16),
}

impl PoolState {
    /// Says whether an idle thread is to be called, if there is one more.
    #[must_use]
    fn calls(&mut self) -> bool {
        let calls = self.called < self.idle;
        match calls {
            true => self.called += 1,
            false => self.short = true,
        }
        calls
    }
}

impl ServingThreads {
    fn new() -> Self {
        Self {
            state: Mutex::default(),
            wanted: Condvar::new(),
            asked: LastMessages::new(),
            serving: [const { AtomicU32::new(0) }; MOST + 1],
            under_way: UnderWay::new(),
        }
    }

    /// Starts the first threads of a process. An error if there can be none; then nobody has the process.
    pub(super) fn start(process: &'static Process) -> io::Result<()> {
        let made = Box::into_raw(Box::new(Self::new()));
        // SAFETY: never dropped once there is a thread: they live as long as the process.
        let threads: &'static Self = unsafe { &*made };
        for place in 0..FIRST {
            match threads.spawn(place, process) {
                Err(error) if place == 0 => {
                    // SAFETY: there is no thread that has it.
                    drop(unsafe { Box::from_raw(made) });
                    return Err(error);
                }
                Err(_) => break,
                Ok(()) => threads.state().threads += 1,
            }
        }
        // Without it each read is waited for by a thread. It leaves faults to others, of which one reads messages.
        let reap = move || take_completions(threads, process);
        let is_alone = threads.state().threads < FIRST;
        if !is_alone && thread::start(c"softfault-reads", STACK, reap).is_ok() {
            apart::will_be_reaped();
        }
        Ok(())
    }

    fn spawn(&'static self, place: usize, process: &'static Process) -> io::Result<()> {
        self.state().starting += 1;
        let serve = move || run(self, place, process);
        let stacks = stacks().map(|stacks| (stacks, place));
        let started = thread::start_on(stacks, c"softfault-serve", STACK, serve).map(drop);
        if started.is_err() {
            self.state().starting -= 1;
        }
        started
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to do.
    fn next_role(&self) -> Role {
        let mut state = self.state();
        loop {
            // One that is alone has faults left to itself only.
            if !state.reading && (state.threads > 1 || state.left.is_empty()) {
                state.reading = true;
                return Role::Read;
            }
            if let Some(place) = state.left.pop() {
                return Role::Serve(place);
            }
            state.idle += 1;
            let wanted = self.wanted.wait(state);
            state = wanted.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            state.called = state.called.saturating_sub(1);
        }
    }

    /// How a thread begins that reads.
    pub(super) fn reader_start(&self) -> MessageReaderStart {
        self.state().start
    }

    /// Lets an idle thread read. False if there is none: this one has to read on, unless it is alone, or `must` stop.
    pub(super) fn stop_reading(&self, start: MessageReaderStart, must: bool) -> bool {
        let mut state = self.state();
        let calls = state.calls();
        let stops = calls || must || state.threads <= 1;
        if stops {
            (state.reading, state.start) = (false, start);
        }
        drop(state);
        if calls {
            self.wanted.notify_one();
        }
        stops
    }

    /// Changes the state, so that there is something to do for an idle thread, and calls one. After the lock is free again: a thread
    /// that wakes on this processor would run at once, and sleep for the lock.
    fn call(&self, change: impl FnOnce(&mut PoolState)) {
        let mut state = self.state();
        change(&mut state);
        let calls = state.calls();
        drop(state);
        if calls {
            self.wanted.notify_one();
        }
    }

    /// Leaves a fault that has a place to an idle thread, or the next that is.
    pub(super) fn leave(&self, place: u16) {
        stage::let_go(Stage::Switch as u8);
        self.call(|state| state.left.push(place));
    }

    /// Starts another thread if one was wanted, and another thread reads, or was called to. If this one `waits` now, one more is to be
    /// idle.
    pub(super) fn grow(&'static self, process: &'static Process, waits: bool) {
        let place = {
            let mut state = self.state();
            let is_read = state.reading || state.called > 0;
            let is_short = state.short || waits && state.called >= state.idle + state.starting;
            if !is_short || !is_read || state.threads == MOST {
                return;
            }
            state.short = false;
            state.threads += 1;
            state.threads - 1
        };
        if self.spawn(place, process).is_err() {
            // As many as there are have to do. Another may have taken the next place: then this one
            // stays empty.
            let mut state = self.state();
            if state.threads == place + 1 {
                state.threads = place;
            }
        }
    }

    /// Ends the process if the touch is one of ours.
    pub(super) fn refuse_own(&self, touch: &Touch) {
        let is_ours = |serving: &AtomicU32| serving.load(Relaxed) == touch.thread;
        if self.serving.iter().any(is_ours) {
            // It holds the page that the answer would wait for: the program has thrown a page away that was
            // being written to swap.
            raise::end_process();
        }
    }

    /// Serves a fault from its beginning, and waits where it has to.
    pub(super) fn serve(&self, process: &'static Process, touch: &Touch) {
        let outcome = fault::handle(process.space(), touch.addr, touch.flags, &NeverInterrupted);
        self.end(process, touch, outcome, true);
    }

    /// Lets a thread go on whose fault has ended. `may_wait`: the caller delivers no reads that somebody waits for.
    pub(super) fn end(&self, process: &Process, touch: &Touch, outcome: Outcome, may_wait: bool) {
        let &Touch {
            addr,
            thread,
            number,
            from,
            changes,
            ..
        } = touch;
        let served = match outcome {
            Outcome::Mapped | Outcome::Interrupted => true,
            Outcome::Error(FaultError::NotMapped) => process.mmu().has_changed_since(changes, addr),
            Outcome::Error(_) => {
                process.note_error();
                false
            }
        };
        if !served {
            let mut poisoned = Poisoned::No;
            let refuse = |before| {
                // Of a system call, which no signal ends: it answers EFAULT.
                if process.faults() == Faults::Messages && raise::may_be_in_call(thread) {
                    poisoned = process.mmu().poison(addr);
                }
                if poisoned == Poisoned::No {
                    raise::raise(thread, addr, before);
                }
            };
            self.asked.refuse(thread, number, refuse);
            if may_wait && poisoned == Poisoned::NotMissing {
                // The call may not write to it. It touches the page again, and is answered if that fails as well, and the page went.
                process.space().evict_page(addr);
            }
        }
        let waking = Stage::Wake.span();
        self.asked.end(thread, number);
        process.mmu().wake(from, addr);
        drop(waking);
        stage::let_go(Stage::Return as u8);
    }

    fn is_serving(&self, place: usize, thread: u32) {
        self.serving[place].store(thread, Relaxed);
    }
}

/// The loop of a thread. A panic ends the process, as it would in a handler.
extern "C" fn run(pool: &'static ServingThreads, place: usize, process: &'static Process) {
    signal::mask_all();
    let this_thread = raise::this_thread();
    pool.state().starting -= 1;
    loop {
        let role = pool.next_role();
        pool.is_serving(place, this_thread);
        match role {
            Role::Serve(left) => {
                stage::take_over(Stage::Handler as u8);
                pool.grow(process, true);
                let Held { touch, .. } = pool.under_way.take(left);
                pool.serve(process, &touch);
            }
            Role::Read => begin::by_messages(pool, process),
        }
        pool.is_serving(place, 0);
        pool.grow(process, false);
    }
}

/// The loop of the ring's thread.
extern "C" fn take_completions(pool: &'static ServingThreads, process: &'static Process) {
    signal::mask_all();
    pool.is_serving(MOST, raise::this_thread());
    let ring = apart::wait_for_ring();
    loop {
        // SAFETY: there is one such thread in a process, and nobody else reaps this ring.
        unsafe { ring.deliver_next(&Arrivals { pool, process }, LONG) };
    }
}

/// Takes the reads of faults.
struct Arrivals {
    pool: &'static ServingThreads,
    process: &'static Process,
}

impl Complete for Arrivals {
    fn complete(&self, cookie: u64, result: Result<usize, StoreError>) {
        stage::take_over(Stage::Handler as u8);
        let Self { pool, process } = *self;
        let (under_way, place) = (&pool.under_way, cookie as u16);
        let (touch, read) = under_way.with(place, |held| (held.touch, held.read.take()));
        if result == Err(apart::WOULD_WAIT) {
            // A thread that waits begins it anew: this one delivers what the holder of the file's lock may sleep for.
            drop(read);
            return pool.leave(place);
        }
        match read.expect("its read was begun").arrived(result) {
            StartedFault::Over(outcome) => {
                under_way.take(place);
                pool.end(process, &touch, outcome, false);
            }
            // The page was evicted again at once, or private memory is elsewhere by now.
            StartedFault::Read(read) => {
                under_way.with(place, |held| held.read = Some(read));
                let mut batch = Batch::new(pool);
                batch.push(place);
                batch.submit();
            }
            StartedFault::Waits(wait) => {
                let flags = wait.leave();
                under_way.with(place, |held| held.touch.flags = flags);
                pool.leave(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Failed before: the last thread that did not wait went on to wait in a fault, for a file's lock. The message of the thread that had
    /// that lock was never read.
    #[test]
    fn somebody_reads_while_others_wait() {
        let pool = ServingThreads::new();
        let start = MessageReaderStart::default();
        pool.state().threads = 2;
        assert!(matches!(pool.next_role(), Role::Read));
        assert!(!pool.stop_reading(start, false), "the other one waits");
        pool.state().idle = 1;
        assert!(pool.stop_reading(start, false));
        // All that is left.
        pool.state().left.push(7);
        assert!(matches!(pool.next_role(), Role::Read));
        assert!(matches!(pool.next_role(), Role::Serve(7)));
    }

    #[test]
    fn a_thread_that_is_alone_reads_and_waits_in_turn() {
        let pool = ServingThreads::new();
        pool.state().threads = 1;
        assert!(matches!(pool.next_role(), Role::Read));
        pool.state().left.push(7);
        assert!(pool.stop_reading(MessageReaderStart::default(), false));
        assert!(matches!(pool.next_role(), Role::Serve(7)));
        assert!(matches!(pool.next_role(), Role::Read));
    }
}
