//! The kernel's side of a ring: takes reads, gives answers.

use std::os::fd::RawFd;

use super::QueueKind;
use super::aio::Aio;
use super::table::Request;
use super::uring::Uring;

/// Answers collected at once.
pub(super) const BATCH: usize = 16;

/// How long to wait where the kernel cannot be waited for.
pub(super) const PAUSE_NS: u64 = 1_000_000;

/// A read as the kernel gets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) slot: u16,
    pub(super) fd: RawFd,
    pub(super) offset: u64,
    pub(super) buffer: *mut u8,
    pub(super) bytes: usize,
}

impl Entry {
    /// What is left of a read of which `done` bytes have arrived.
    pub(super) fn new(slot: u16, request: &Request, done: usize, fd: RawFd) -> Self {
        Self {
            slot,
            fd,
            offset: request.offset + done as u64,
            buffer: request.buffer.wrapping_add(done),
            bytes: request.bytes - done,
        }
    }
}

/// The kernel's answer to a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) slot: u16,
    /// Bytes, or an errno below zero.
    pub(super) answer: i64,
}

impl Done {
    pub(super) const NONE: Self = Self { slot: 0, answer: 0 };
}

/// A queue into the kernel, of either kind.
#[derive(Debug)]
pub(super) enum Queue {
    Uring(Box<Uring>),
    Aio(Aio),
    /// Answers when a test lets it.
    #[cfg(test)]
    Held(super::held::Held),
}

impl Queue {
    pub(super) fn new(kind: QueueKind, entries: usize) -> Result<Self, i32> {
        Ok(match kind {
            QueueKind::Uring => Self::Uring(Box::new(Uring::new(entries)?)),
            QueueKind::Aio => Self::Aio(Aio::new(entries)?),
        })
    }

    /// Hands reads over in one system call where the kernel lets it be one,
    /// and returns how many, from the front, it took. Takes the queue's lock.
    /// At most as many reads as the ring has entries are in flight: the caller
    /// has a slot for each.
    pub(super) fn submit(&self, count: usize, entry: impl Fn(usize) -> Entry) -> usize {
        match self {
            Self::Uring(uring) => uring.submit(count, entry),
            Self::Aio(aio) => aio.submit(count, entry),
            #[cfg(test)]
            Self::Held(held) => held.submit(count, entry),
        }
    }

    /// Collects answers, waiting up to `wait_ns` for the first; how many there
    /// were. Only the ring's leader may call this.
    pub(super) fn collect(&self, done: &mut [Done; BATCH], wait_ns: u64) -> usize {
        match self {
            Self::Uring(uring) => uring.collect(done, wait_ns),
            Self::Aio(aio) => aio.collect(done, wait_ns),
            #[cfg(test)]
            Self::Held(held) => held.collect(done, wait_ns),
        }
    }

    /// Gives up a child's copy of the queue.
    pub(super) fn close_in_child(&self) {
        match self {
            Self::Uring(uring) => uring.close_in_child(),
            // The kernel does not let a child use its parent's.
            Self::Aio(_) => {}
            #[cfg(test)]
            Self::Held(_) => {}
        }
    }

    /// Gives the queue up.
    ///
    /// # Safety
    /// Nothing is in flight, and the queue is not used any more.
    pub(super) unsafe fn close(&mut self) {
        match self {
            // SAFETY: the caller's promise.
            Self::Uring(uring) => unsafe { uring.close() },
            Self::Aio(aio) => aio.close(),
            #[cfg(test)]
            Self::Held(_) => {}
        }
    }
}

/// Sleeps where the kernel cannot be waited for.
pub(super) fn pause(ns: u64) {
    let time = super::deadline::timespec(ns.min(PAUSE_NS));
    // SAFETY: the time is valid; how much of it was left is not asked.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}
