//! The threads that serve faults, and the order in which they read.
//!
//! ```text
//!   idle ──► reads ──► serves ──► idle          one thread reads at a time: all that read
//!             ▲  │                              would be woken for each message
//!             │  └─ there is an idle one: it reads on
//!             └──── none: this one reads on, once it has served
//! ```
//!
//! A thread that was idle is never needed for a fault to end: serving waits for disks and for memory,
//! and for no other message. So few threads are slow and not stuck. Where messages had nobody to read them,
//! whoever has served starts another thread, up to a bound, and only while another thread reads: starting one
//! uses the heap, which may itself be in a map of ours.

use super::asked::Asked;
use super::raise;
use crate::process::Process;
use crate::signal;
use crate::thread;
use crate::uffd::{Faults, Message};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::fault::{self, FaultError, FaultFlags, NeverInterrupted, Outcome};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Threads at first: one reads while the other serves.
const FIRST: usize = 2;
/// Threads at most: faults that wait for the disk at a time.
const MOST: usize = 64;
/// A thread's stack. Serving needs 3 KiB, libc and the standard library some more.
const STACK: usize = 64 << 10;

/// The threads of a process. A child of fork has its own.
pub(super) struct ServingThreads {
    state: Mutex<PoolState>,
    /// Nobody reads any more.
    free: Condvar,
    asked: Asked,
    /// Threads of ours that are serving, by the kernel's numbers; 0 for none.
    serving: [AtomicU32; MOST],
}

#[derive(Default)]
struct PoolState {
    threads: usize,
    idle: usize,
    reading: bool,
    /// A message was read, and nobody was left to read the next.
    short: bool,
}

impl ServingThreads {
    fn new() -> Self {
        Self {
            state: Mutex::default(),
            free: Condvar::new(),
            asked: Asked::new(),
            serving: [const { AtomicU32::new(0) }; MOST],
        }
    }

    /// Starts the first threads of a process. An error if there can be none.
    pub(super) fn start(process: &'static Process) -> io::Result<()> {
        // Never dropped: they live as long as the process.
        let threads: &'static Self = Box::leak(Box::new(Self::new()));
        for place in 0..FIRST {
            match threads.spawn(place, process) {
                Err(error) if place == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => threads.state().threads += 1,
            }
        }
        Ok(())
    }

    fn spawn(&'static self, place: usize, process: &'static Process) -> io::Result<()> {
        let serve = move || run(self, place, process);
        thread::start(c"softfault-serve", STACK, serve).map(drop)
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this thread is to read.
    fn begin_reading(&self) {
        let mut state = self.state();
        state.idle += 1;
        while state.reading {
            let free = self.free.wait(state);
            state = free.unwrap_or_else(PoisonError::into_inner);
        }
        state.idle -= 1;
        state.reading = true;
    }

    /// Lets another thread read; `false` if there is none.
    fn hand_over(&self) -> bool {
        let mut state = self.state();
        if state.idle == 0 {
            state.short = true;
            return false;
        }
        state.reading = false;
        self.free.notify_one();
        true
    }

    /// Starts another thread if one was wanted. Another thread reads, or is about to.
    fn grow(&'static self, process: &'static Process) {
        let place = {
            let mut state = self.state();
            if !core::mem::take(&mut state.short) || state.threads == MOST {
                return;
            }
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

    /// Serves a message, and lets the thread go on.
    fn serve(&self, place: usize, process: &Process, message: &Message, number: u64) {
        let is_ours = |serving: &AtomicU32| serving.load(Relaxed) == message.thread;
        if self.serving.iter().any(is_ours) {
            // It holds what the answer would wait for: the program has thrown a page away that was
            // being written to swap.
            raise::end_process();
        }
        self.serving[place].store(raise::this_thread(), Relaxed);
        let flags = FaultFlags {
            write: message.write,
            ..FaultFlags::default()
        };
        let addr = message.addr;
        let served = match fault::handle(process.space(), addr, flags, &NeverInterrupted) {
            Outcome::Mapped | Outcome::Interrupted => true,
            Outcome::Error(FaultError::NotMapped) => process.mmu().has_changed(addr),
            Outcome::Error(error) => {
                process.note_error(addr, error);
                false
            }
        };
        self.serving[place].store(0, Relaxed);
        if !served {
            let refuse = || {
                // Of a system call, which no signal ends: it answers EFAULT.
                let by_kernel =
                    process.faults() == Faults::Messages && raise::is_in_call(message.thread);
                if !(by_kernel && process.mmu().poison(addr)) {
                    raise::raise(message.thread, addr);
                }
            };
            self.asked.refuse(message.thread, number, refuse);
        }
        process.mmu().wake(addr);
    }
}

/// What a thread does, for ever. A panic ends the process, as it would in a handler.
extern "C" fn run(pool: &'static ServingThreads, place: usize, process: &'static Process) {
    signal::mask_all();
    let mmu = process.mmu();
    loop {
        pool.begin_reading();
        loop {
            let message = mmu.next_message();
            let number = pool.asked.note(message.thread);
            let handed_over = pool.hand_over();
            pool.serve(place, process, &message, number);
            if handed_over {
                break;
            }
        }
        pool.grow(process);
    }
}
