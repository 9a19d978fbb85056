//! The batches of a node, made once: the fault handler has no heap.
//!
//! A thread that evicts takes a batch, and waits where all that it may have are taken: for the batch of its processor. Any
//! thread may have the first [`CONCURRENT`]; each of the others is for the processors of one number modulo the count. So few
//! processors have few batches under way at a time, and evict no more at a time than before there is enough. With 256
//! processors four batches were not enough: in a thrash most threads waited for one.
//!
//! **Files that are written to** have dirty pages, and a batch needs memory to write them back. The first [`CONCURRENT`] get it,
//! and the others are not taken any more.

use super::evict::FolioBatch;
use super::write_back::WriteSheet;
use crate::lock::{Mutex, MutexGuard, order};
use sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Batches that may be under way at a time on any machine, and of a node whose files are written to.
pub(super) const CONCURRENT: usize = 4;
/// The most batches of a node.
const MOST: usize = 64;
/// Pages of the budget for each batch: all together evict an eighth of a large one at a time, and at most a fifth.
const SHARE: usize = 4096;

/// A batch that the caller has.
pub type TakenBatch<'a> = MutexGuard<'a, Box<FolioBatch>, { order::RECLAIM_BATCH }>;

/// The batches of a node.
pub struct Batches {
    batches: Box<[Mutex<Box<FolioBatch>, { order::RECLAIM_BATCH }>]>,
    /// Files are written to. Never reset.
    writes: AtomicBool,
}

impl Batches {
    /// Empty batches, for a budget of so many pages.
    pub fn new(pages: usize) -> Self {
        let count = (pages / SHARE).clamp(CONCURRENT, MOST);
        Self {
            batches: (0..count)
                .map(|number| match number < CONCURRENT {
                    true => Mutex::ranked(FolioBatch::new(1)),
                    // Of half the pages: those who wait for it go on sooner.
                    false => Mutex::ranked(FolioBatch::new(2)),
                })
                .collect(),
            writes: AtomicBool::new(false),
        }
    }

    /// Pages of memory that write-back needs, with so many copies a batch.
    pub(crate) fn write_pages(copies: usize) -> u64 {
        (CONCURRENT * WriteSheet::pages(copies)) as u64
    }

    /// Lets batches be written back from now on. When it returns no batch is under way that cannot be. False where the
    /// system has no memory for the copies: nothing is written then.
    pub fn will_write(&self, copies: usize) -> bool {
        let sheets: Option<Vec<_>> = (0..CONCURRENT).map(|_| WriteSheet::new(copies)).collect();
        let Some(sheets) = sheets else {
            return false;
        };
        // Relaxed: a thread that takes a batch after the look at it below has it from that lock.
        self.writes.store(true, Relaxed);
        let mut sheets = sheets.into_iter();
        for batch in &self.batches {
            let (mut batch, sheet) = (batch.lock(), sheets.next());
            if batch.sheet.is_none() {
                batch.sheet = sheet;
            }
        }
        true
    }

    /// Bytes of the arrays.
    pub fn bytes(&self) -> usize {
        self.batches.len() * size_of::<FolioBatch>()
    }

    /// Takes a batch, one that can be written back if files are written to.
    pub fn take(&self) -> TakenBatch<'_> {
        let cpu = sync::cpu();
        let own = &self.batches[cpu % self.batches.len()];
        let anybodys = &self.batches[..CONCURRENT];
        if !self.writes.load(Relaxed) {
            let batch = own.try_lock();
            let batch = batch.or_else(|| anybodys.iter().find_map(Mutex::try_lock));
            let batch = batch.unwrap_or_else(|| own.lock());
            // Again under its lock: see `will_write`.
            if batch.can_write() || !self.writes.load(Relaxed) {
                return batch;
            }
        }
        let batch = anybodys.iter().find_map(Mutex::try_lock);
        batch.unwrap_or_else(|| anybodys[cpu % CONCURRENT].lock())
    }
}
