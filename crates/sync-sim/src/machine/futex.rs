//! Waits on words, as the kernel's futexes: a hash of buckets, each with its
//! lock's line and the waiters, in the order in which they came.

use core::panic::Location;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::collections::VecDeque;

use super::kernel::{self, At, Machine};
use super::line::Line;
use super::thread::State;
use super::trace::Operation;

/// Buckets: Linux has 256 for each CPU. Few meet in one either way.
pub const BUCKETS: usize = 256;

/// A bucket.
#[derive(Debug)]
pub struct Bucket {
    lock: Line,
    /// Address of the word, and the thread.
    waiters: VecDeque<(usize, u32)>,
}

/// All of them, for a run.
pub fn buckets(run: u32) -> Vec<Bucket> {
    (1..=BUCKETS as u32)
        .map(|id| Bucket {
            lock: Line::new(run, id),
            waiters: VecDeque::with_capacity(8),
        })
        .collect()
}

/// Which bucket words of a line are in. By the line's number and not by its
/// address, which is another one in each process.
fn bucket_of(line: u32) -> usize {
    (line.wrapping_mul(0x9E37_79B1) >> 16) as usize % BUCKETS
}

/// Sleeps while the word holds `expected`. False outside a machine.
#[track_caller]
pub fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> bool {
    let machine = kernel::machine();
    if machine.is_null() {
        return false;
    }
    // SAFETY: the machine of this thread, which runs; no borrow of it lives.
    unsafe { Machine::wait(machine, word, expected, timeout_ns, Location::caller()) };
    true
}

/// Wakes up to `count` that sleep on the word. False outside a machine.
#[track_caller]
pub fn wake(word: &AtomicU32, count: u32) -> bool {
    let machine = kernel::machine();
    if machine.is_null() {
        return false;
    }
    let word = core::ptr::from_ref(word).addr();
    // SAFETY: as in `wait`.
    unsafe { Machine::wake(machine, word, count, Location::caller()) };
    true
}

impl Machine {
    unsafe fn wait(
        this: *mut Self,
        word: &AtomicU32,
        expected: u32,
        timeout_ns: Option<u64>,
        at: At,
    ) {
        // SAFETY: the caller's promise; lines stay where they are.
        unsafe {
            let addr = core::ptr::from_ref(word).addr();
            (*this).now += (*this).scheduler.call;
            Self::begin(this);
            let line = (*this).line(addr);
            let bucket = bucket_of((*line).id);
            let lock = &raw mut (&mut (*this).buckets)[bucket].lock;
            Self::fetch(this, lock, true, at);
            Self::fetch(this, line, false, at);
            // From here to the sleep nothing else happens, and no time passes.
            let sleeps = word.load(Relaxed) == expected;
            let machine = &mut *this;
            machine.after = 0;
            machine.note(Operation::Wait, (*line).id, sleeps, at);
            if !sleeps {
                return;
            }
            let until = timeout_ns.map(|ns| machine.now.saturating_add(ns.saturating_mul(1000)));
            machine.own(|machine| {
                machine.buckets[bucket]
                    .waiters
                    .push_back((addr, machine.thread));
            });
            let state = State::Waits {
                word: addr,
                expected,
                bucket,
                until,
            };
            Self::block(this, state, at);
        }
    }

    unsafe fn wake(this: *mut Self, word: usize, count: u32, at: At) {
        // SAFETY: as in `wait`.
        unsafe {
            (*this).now += (*this).scheduler.call;
            Self::begin(this);
            let line = (*this).line(word);
            let bucket = bucket_of((*line).id);
            let lock = &raw mut (&mut (*this).buckets)[bucket].lock;
            // An empty bucket is seen without its lock.
            let empty = (&(*this).buckets)[bucket].waiters.is_empty();
            Self::fetch(this, lock, !empty, at);
            let machine = &mut *this;
            let mut woken = 0;
            while woken < count {
                let waiters = &mut machine.buckets[bucket].waiters;
                let Some(first) = waiters.iter().position(|&(addr, _)| addr == word) else {
                    break;
                };
                let (_, thread) = waiters.remove(first).expect("it was found there");
                woken += 1;
                machine.now += machine.scheduler.wake;
                machine.wake_thread(thread);
            }
            machine.note(Operation::Wake, (*line).id, woken == 0, at);
            if woken > 0 {
                machine.progress();
                machine.set_limit();
            }
        }
    }

    /// A wait that has come to its time's end.
    pub fn time_out(&mut self, thread: u32) {
        if let State::Waits { bucket, .. } = self.threads[thread as usize].state {
            self.buckets[bucket]
                .waiters
                .retain(|&(_, waiter)| waiter != thread);
        }
        self.wake_thread(thread);
    }
}
