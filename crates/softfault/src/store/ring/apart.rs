//! Reads of faults that threads of ours serve: one ring for all files of a process, which one thread reaps.
//!
//! A thread that serves the faults of others begins their reads and goes on to the next fault
//! ([`faults`](crate::faults)). The engines' rings would not do for that: each is reaped by a thread that needs one of its reads,
//! and there are several. The serving threads know the meaning of this one's cookies.
//!
//! Only reads past the page cache are taken. Of those through it, the ones that do not find their bytes would have to be waited for.
//!
//! Nor are reads taken that wait for their file's lock. A thread that writes to the file has that lock, and may itself sleep in a
//! fault, for a read that only the thread of this ring delivers, or in a message that nobody has read yet. So no read waits in the
//! call that submits it, nor for a server of the table, which may wait for such a lock: it is submitted by a number. One that the kernel
//! refuses is repeated in the same way, a few times. Then its answer is [`WOULD_WAIT`], and its fault goes to a thread that others do
//! not depend on.

use super::{QueueKind, Ring};
use crate::generation::PerProcess;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use softfault_engine::store::StoreError;
use std::sync::OnceLock;
use sync::wait::WaitWord;

/// The answer to a read that a thread has to wait for. None fails with this errno: reads that are refused with it are repeated, or
/// finished by a thread that waits.
pub(crate) const WOULD_WAIT: StoreError = StoreError::Io(libc::EAGAIN);

/// The ring of a process. A child of fork makes its own.
static READS: PerProcess<FaultReads> = PerProcess::new();

struct FaultReads {
    /// Somebody reaps it. Release and Acquire: it was begun before.
    wanted: AtomicBool,
    /// `None` inside: the kernel has none for us.
    ring: OnceLock<Option<Ring>>,
    /// 1 once there is a ring.
    made: WaitWord,
}

impl Default for FaultReads {
    fn default() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            ring: OnceLock::new(),
            made: WaitWord::new(0),
        }
    }
}

/// From now on a thread of this process reaps the ring, once there is one.
pub(crate) fn will_be_reaped() {
    READS.get().wanted.store(true, Release);
}

/// An engine has got rings, of one of these kinds. Not for a thread that serves faults: it uses the heap.
pub(super) fn make(kinds: &[QueueKind]) {
    let reads = READS.get();
    if !reads.wanted.load(Acquire) || reads.ring.get().is_some() {
        return;
    }
    if reads.ring.get_or_init(|| Ring::alone(kinds)).is_some() {
        // Relaxed: the ring is published by its cell.
        reads.made.fetch_or(1, Relaxed);
        reads.made.wake(u32::MAX);
    }
}

/// The ring, if there is one.
pub(crate) fn ring() -> Option<&'static Ring> {
    READS.get().ring.get()?.as_ref()
}

/// The same; sleeps until there is.
pub(crate) fn wait_for_ring() -> &'static Ring {
    loop {
        if let Some(ring) = ring() {
            return ring;
        }
        READS.get().made.wait(0, None);
    }
}
