//! Whether a child lives that may read what was in swap at its fork.
//!
//! A pipe tells, whose writing end only children have: it goes with them, however they
//! end, and when they exec. A grandchild has it too: what it reads is its
//! grandparent's. The reading ends are the parent's.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::ffi::CString;

const NONE: i32 = -1;
/// Pipes at a time. Children beyond share the last.
const PIPES: usize = 16;

/// Reading ends.
static READING: [AtomicI32; PIPES] = [const { AtomicI32::new(NONE) }; PIPES];
/// True once there was no descriptor for a pipe: what is in swap is kept for ever.
static UNKNOWN: AtomicBool = AtomicBool::new(false);

/// True if a child may live. No lock, no heap: faults ask.
pub(crate) fn live() -> bool {
    // Relaxed throughout: there is a pipe before there is something to inherit, and
    // the lock that says so orders it.
    UNKNOWN.load(Ordering::Relaxed)
        || (READING.iter()).any(|end| match end.load(Ordering::Relaxed) {
            NONE => false,
            end => has_writer(end),
        })
}

fn has_writer(reading: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: reading,
        events: 0,
        revents: 0,
    };
    // SAFETY: fills the structure.
    let answer = unsafe { libc::poll(&mut poll, 1, 0) };
    // What cannot be asked may be.
    answer < 0 || poll.revents & libc::POLLHUP == 0
}

/// A writing end for a child that is about to be made. Held by the parent too, until
/// it is made.
pub(super) struct Writing(i32);

impl Writing {
    /// One at a time: who forks has a lock.
    pub(super) fn new() -> Self {
        let mut free = None;
        let mut last = NONE;
        for end in &READING {
            match end.load(Ordering::Relaxed) {
                NONE => free = free.or(Some(end)),
                // Only here are they closed. Who asks of a number that means something
                // else by then has found this one's children dead, or somebody alive.
                dead if !has_writer(dead) => {
                    end.store(NONE, Ordering::Relaxed);
                    close(dead);
                    free = free.or(Some(end));
                }
                alive => last = alive,
            }
        }
        let made = match free {
            Some(free) => pipe().map(|[reading, writing]| {
                free.store(reading, Ordering::Relaxed);
                writing
            }),
            None => None,
        };
        match made.or_else(|| reopened(last)) {
            Some(writing) => Self(writing),
            None => {
                UNKNOWN.store(true, Ordering::Relaxed);
                Self(NONE)
            }
        }
    }

    /// In the parent: only children have it from now on.
    pub(super) fn close(self) {
        close(self.0);
    }

    /// In the child, which keeps it: the parent's children are not its own.
    pub(super) fn keep_in_child(self) {
        for end in &READING {
            close(end.swap(NONE, Ordering::Relaxed));
        }
        UNKNOWN.store(false, Ordering::Relaxed);
    }
}

fn pipe() -> Option<[i32; 2]> {
    let mut ends = [NONE; 2];
    // SAFETY: fills both numbers.
    let answer = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    (answer == 0).then_some(ends)
}

/// Another writing end of the pipe that `reading` is of.
fn reopened(reading: i32) -> Option<i32> {
    let path = CString::new(format!("/proc/self/fd/{reading}")).ok()?;
    // SAFETY: the path is a string that ends in zero.
    let writing = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    (reading != NONE && writing >= 0).then_some(writing)
}

fn close(fd: i32) {
    if fd != NONE {
        // SAFETY: ours, and not used any more.
        unsafe { libc::close(fd) };
    }
}
