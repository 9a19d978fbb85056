//! Writes of many runs at a time, waited for together.

use super::aio::Aio;
use super::queue::{BATCH, Done, FileHandle, RingEntry};
use crate::table::Guarded;

/// Runs of one call at most.
pub(crate) const MOST_RUNS: usize = 256;
/// Between two looks for completions.
const WAIT_NS: u64 = 1_000_000_000;

/// Bytes in a row, in memory and in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) offset: u64,
    pub(crate) bytes: *const u8,
    pub(crate) len: usize,
}

/// A queue for one thread at a time.
#[derive(Debug)]
pub(crate) struct WriteQueue(Aio);

impl WriteQueue {
    /// `None` where there are none.
    pub(crate) fn new() -> Option<Self> {
        Some(Self(Aio::for_writes(MOST_RUNS).ok()?))
    }

    /// Writes up to [`MOST_RUNS`] runs, and tells of each how many bytes the file has got, or the errno below zero. Returns how
    /// many there were of which it has told, from the front.
    ///
    /// # Safety
    /// The runs are readable.
    pub(crate) unsafe fn write(
        &mut self,
        file: &Guarded,
        count: usize,
        run: impl Fn(usize) -> Run,
        mut over: impl FnMut(usize, i64),
    ) -> usize {
        let entry = |slot| {
            let Run { offset, bytes, len } = run(slot);
            RingEntry {
                slot: slot as u16,
                offset,
                // It is only read.
                buffer: bytes.cast_mut(),
                bytes: len,
            }
        };
        let started = self
            .0
            .submit(FileHandle::Table(file, 0), count, entry)
            .count;
        let mut left = started;
        let mut done = [Done::NONE; BATCH];
        while left > 0 {
            // SAFETY: this is borrowed for writing: no other thread has the queue.
            let arrived = unsafe { self.0.collect(&mut done, WAIT_NS) };
            left -= arrived;
            for done in &done[..arrived] {
                over(usize::from(done.slot), done.answer);
            }
        }
        started
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        self.0.close();
    }
}
