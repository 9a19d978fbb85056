//! The batches of a node, made once: the fault handler has no heap.
//!
//! A thread that evicts takes a batch, that of its processor or any other that is free, and where all are taken it waits for
//! whichever is free first. There are [`CONCURRENT`] of them, or up to the highest number of a processor that has evicted, modulo
//! the count. So few processors have few batches under way at a time, and evict no more at a time than before there is enough.
//! With 256 processors four batches were not enough: in a thrash most threads waited for one.
//!
//! **Files that are written to** have dirty pages, and a batch needs memory to write them back. The first [`CONCURRENT`] get it,
//! and the others are not taken any more.

use super::evict::FolioBatch;
use super::write_back::WriteBatch;
use crate::lock::{MutexPool, PoolGuard, order};
use sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Batches that may be under way at a time on any machine, and of a node whose files are written to.
pub(super) const CONCURRENT: usize = 4;
/// The most batches of a node.
const MOST: usize = 64;
/// Pages of the budget for each batch: all together evict an eighth of a large one at a time, and at most a fifth.
const SHARE: usize = 4096;

/// A batch that the caller has.
pub type TakenBatch<'a> = PoolGuard<'a, Box<FolioBatch>, { order::RECLAIM_BATCH }>;

/// The batches of a node.
pub struct Batches {
    batches: MutexPool<Box<FolioBatch>, { order::RECLAIM_BATCH }>,
    /// How many of them are taken where no file is written to. It only grows, with the processors that are seen.
    used: AtomicUsize,
    /// Files are written to. Never reset.
    writes: AtomicBool,
}

impl Batches {
    /// Empty batches, for a budget of so many pages.
    pub fn new(pages: usize) -> Self {
        let count = (pages / SHARE).clamp(CONCURRENT, MOST);
        Self {
            batches: MutexPool::new((0..count).map(|number| match number < CONCURRENT {
                true => FolioBatch::new(1),
                // Of half the pages: those who wait for it go on sooner.
                false => FolioBatch::new(2),
            })),
            used: AtomicUsize::new(CONCURRENT),
            writes: AtomicBool::new(false),
        }
    }

    /// Pages of memory that write-back needs, with so many copies a batch.
    pub(crate) fn write_pages(copies: usize) -> u64 {
        (CONCURRENT * WriteBatch::pages(copies)) as u64
    }

    /// Lets batches be written back from now on. When it returns no batch is under way that cannot be. False where the
    /// system has no memory for the copies: nothing is written then.
    pub fn will_write(&self, copies: usize) -> bool {
        let write_batches: Option<Vec<_>> =
            (0..CONCURRENT).map(|_| WriteBatch::new(copies)).collect();
        let Some(write_batches) = write_batches else {
            return false;
        };
        // Relaxed: a thread that takes a batch after the look at it below has it from that lock.
        self.writes.store(true, Relaxed);
        let mut write_batches = write_batches.into_iter();
        for place in 0..self.batches.count() {
            let (mut batch, write_batch) = (self.batches.lock(place), write_batches.next());
            if batch.write_batch.is_none() {
                batch.write_batch = write_batch;
            }
        }
        true
    }

    /// Bytes of the arrays.
    pub fn bytes(&self) -> usize {
        self.batches.count() * size_of::<FolioBatch>()
    }

    /// Takes a batch, one that can be written back if files are written to.
    pub fn take(&self) -> TakenBatch<'_> {
        let own = sync::cpu() % self.batches.count();
        // Relaxed, here and below: a release of a batch, which a waiter sees, comes after this.
        if own >= self.used.load(Relaxed) {
            self.used.fetch_max(own + 1, Relaxed);
        }
        self.batches.lock_any(|| self.try_take(own))
    }

    /// Takes a free one, that of the caller's processor if it can.
    fn try_take(&self, own: usize) -> Option<TakenBatch<'_>> {
        if !self.writes.load(Relaxed) {
            let others = own..self.used.load(Relaxed);
            let batch = self.batches.try_lock(others.chain(0..own))?;
            // Again under its lock: see `will_write`.
            if batch.can_write() || !self.writes.load(Relaxed) {
                return Some(batch);
            }
        }
        let first = own % CONCURRENT;
        self.batches.try_lock((first..CONCURRENT).chain(0..first))
    }
}
