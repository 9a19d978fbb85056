//! The kernel's side of a ring: takes reads, gives answers.

use std::os::fd::RawFd;

use super::QueueKind;
use super::aio::Aio;
use super::table::Request;
use super::uring::Uring;
use crate::table::Guarded;

/// Answers collected at once: as many as the handler has stack for.
pub(super) const BATCH: usize = 12;

/// How long to wait where the kernel cannot be waited for.
pub(super) const PAUSE_NS: u64 = 1_000_000;

/// How the kernel finds the file that is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum FileHandle<'a> {
    /// By this number of the calling thread's table, which may mean anything by now: by a pipe
    /// or a userfaultfd a call would wait for bytes that never come. So nothing is waited for, and
    /// a read that would wait is refused (EAGAIN). The second are more flags.
    Number(RawFd, i32),
    /// In the table that no close of the program reaches, with these flags.
    Table(&'a Guarded, i32),
}

impl FileHandle<'_> {
    pub(super) fn fd(self) -> RawFd {
        match self {
            Self::Number(fd, _) => fd,
            Self::Table(guarded, _) => guarded.number(),
        }
    }

    /// RWF_ flags of preadv2(2).
    pub(super) fn flags(self) -> i32 {
        match self {
            Self::Number(_, more) => libc::RWF_NOWAIT | more,
            Self::Table(_, flags) => flags,
        }
    }
}

/// How many reads of a submission the kernel has taken, from the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) count: usize,
    /// The errno with which it refused the next one; 0: there is none, or a ring of io_uring says it by an answer.
    pub(super) refusal: i32,
}

impl From<usize> for Taken {
    fn from(count: usize) -> Self {
        Self { count, refusal: 0 }
    }
}

/// A read as the kernel gets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingEntry {
    pub(super) slot: u16,
    pub(super) offset: u64,
    pub(super) buffer: *mut u8,
    pub(super) bytes: usize,
}

impl RingEntry {
    /// The rest of a read of which `done` bytes have arrived.
    pub(super) fn new(slot: u16, request: &Request, done: usize) -> Self {
        Self {
            slot,
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
    Held(super::held::HeldQueue),
}

impl Queue {
    pub(super) fn new(kind: QueueKind, entries: usize) -> Result<Self, i32> {
        Ok(match kind {
            QueueKind::Uring => Self::Uring(Box::new(Uring::new(entries)?)),
            QueueKind::Aio => Self::Aio(Aio::new(entries)?),
        })
    }

    /// Hands reads over in one system call where the kernel lets it be one. Takes the queue's lock.
    /// At most as many reads as the ring has entries are in flight: the caller
    /// has a slot for each.
    pub(super) fn submit(
        &self,
        through: FileHandle<'_>,
        count: usize,
        entry: impl Fn(usize) -> RingEntry,
    ) -> Taken {
        match self {
            Self::Uring(uring) => uring.submit(through, count, entry).into(),
            Self::Aio(aio) => aio.submit(through, count, entry),
            #[cfg(test)]
            Self::Held(held) => held.submit(count, entry),
        }
    }

    /// Collects answers, waiting up to `wait_ns` for the first; how many there
    /// were.
    ///
    /// # Safety
    /// No other thread collects meanwhile: the caller polls the ring, or has it to itself.
    pub(super) unsafe fn collect(&self, done: &mut [Done; BATCH], wait_ns: u64) -> usize {
        match self {
            // SAFETY: the caller's promise.
            Self::Uring(uring) => unsafe { uring.collect(done, wait_ns) },
            // SAFETY: as above.
            Self::Aio(aio) => unsafe { aio.collect(done, wait_ns) },
            #[cfg(test)]
            Self::Held(held) => held.collect(done, wait_ns),
        }
    }

    /// True if a buffered read that has to wait would do so in the submission.
    pub(super) fn waits_at_once(&self) -> bool {
        matches!(self, Self::Aio(_))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    /// Files of which no read comes back by itself.
    fn silent() -> Vec<OwnedFd> {
        let mut ends = [0; 2];
        // SAFETY: fills the array; the descriptors are new.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            let others = [
                sync::system_call!(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) as RawFd,
                libc::eventfd(0, libc::EFD_CLOEXEC),
            ];
            let all = ends.into_iter().chain(others);
            all.filter(|&fd| fd >= 0)
                .map(|fd| OwnedFd::from_raw_fd(fd))
                .collect()
        }
    }

    /// The program has put one at our number a moment ago. Failed before: io_submit(2) did not
    /// come back, and the fault held its VMA for ever.
    #[test]
    fn no_queue_waits_for_bytes_that_never_come() {
        for kind in [QueueKind::Aio, QueueKind::Uring] {
            let Ok(mut queue) = Queue::new(kind, 8) else {
                softfault_skip::skipped("kernel", format_args!("there is no {kind:?}"));
                continue;
            };
            for file in silent() {
                let mut page = vec![0u8; 4096];
                let entry = RingEntry {
                    slot: 3,
                    offset: 0,
                    buffer: page.as_mut_ptr(),
                    bytes: page.len(),
                };
                let through = FileHandle::Number(file.as_raw_fd(), 0);
                if queue.submit(through, 1, |_| entry).count == 0 {
                    continue;
                }
                let mut done = [Done::NONE; BATCH];
                // SAFETY: the test's thread alone has the queue.
                let arrived = unsafe { queue.collect(&mut done, 20_000_000_000) };
                assert_eq!(arrived, 1, "{kind:?}");
                assert!(done[0].slot == 3 && done[0].answer < 0, "{:?}", done[0]);
            }
            // SAFETY: all was answered.
            unsafe { queue.close() };
        }
    }
}
