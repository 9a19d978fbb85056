//! Evicting a batch of private memory.
//!
//! ```text
//!   1  chosen      the hand comes by, no passes are left: locked      choose.rs
//!   2  protected   those that were written: nobody writes any more    write.rs
//!   3  written     to slots in a row, from where they are, or copies of them (`Mmu::calls_wait`)
//!   4  zapped      all of the batch, in one go; pages that a device writes to stay    evict.rs
//!   5  unlocked    as swapped, or absent
//! ```
//!
//! A write that comes before 2 is in the slot's bytes; one that comes after it ends
//! in a fault, which finds the page locked and waits. Such a page stays, if that
//! comes before 4: it has a slot now, and is clean. A page that cannot be written, because
//! no slot is free or the device fails, stays too.
//!
//! The verbs that take pages out on purpose (`madvise`) use the same steps.

use super::Copies;
use super::windows::{Busy, Windows};
use crate::PAGE_SIZE;
use crate::anon::PageState;
use crate::cache::Node;
use crate::lock::{Mutex, MutexGuard, order};
use crate::mmu::WrittenPage;
use crate::stats::PerCpuCounter;
use core::ops::Range;
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU32, AtomicU64};
use sync::stat::Counter;
use write::Source;

mod balance;
mod choose;
mod evict;
mod write;

pub(crate) use balance::Balance;
pub(crate) use choose::Taken;

/// Pages a batch.
pub(crate) const BATCH: usize = 384;
/// Batches that may be under way at a time.
const CONCURRENT: usize = 4;
/// Windows that a batch may have pages of.
const WINDOWS: usize = 16;

/// A page of a batch.
#[derive(Debug, Clone, Copy)]
struct Victim {
    /// Which of the batch's windows it is of.
    window: usize,
    addr: usize,
    page: usize,
    /// Its state when it was locked.
    state: PageState,
    /// Residents before it that stay, since the last victim.
    skipped: u32,
    fate: EvictOutcome,
    /// For pages that are written where devices may write to them, too: a sum of their bytes before.
    sum: u64,
}

/// The fate of a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvictOutcome {
    /// It goes: it can be had again from where it came, or is not wanted.
    Drops,
    /// It has to be written first.
    Writes,
    /// It has been, to this slot.
    Written(u32),
    /// It cannot be, or somebody waits for it.
    Stays,
    /// It cannot be, for it is not there: the program has thrown it away
    /// (`fault::vanished`).
    Vanished,
}

/// The arrays of a batch: too large for the handler's stack. None of them grows.
pub(crate) struct PrivateBatch {
    victims: Vec<Victim>,
    windows: Vec<Busy>,
    ranges: Vec<Range<usize>>,
    /// Page tables that were counted out: their windows, and their ranges.
    tables: Vec<(usize, Range<usize>)>,
    sources: Vec<Source>,
    /// The pages that they are copied to. `None` where they are written from where they are.
    copies: Option<Copies>,
    /// Those that devices may be writing to are found here.
    pinned: Vec<WrittenPage>,
}

impl PrivateBatch {
    fn new(copies: Option<Copies>) -> Self {
        Self {
            copies,
            victims: Vec::with_capacity(BATCH),
            windows: Vec::with_capacity(WINDOWS),
            ranges: Vec::with_capacity(BATCH),
            tables: Vec::with_capacity(BATCH),
            sources: Vec::with_capacity(BATCH),
            pinned: Vec::with_capacity(BATCH),
        }
    }

    fn is_full(&self) -> bool {
        self.victims.len() == BATCH
    }
}

/// Reclaim's state of a node's private memory.
pub(crate) struct PrivateMemory {
    /// The windows that can be evicted.
    pub(crate) windows: Windows,
    pub(crate) batches: AnonymousBatches,
    /// Pages evicted so far.
    pub(super) clock: AtomicU64,
    /// Pages charged so far, but for those that faults filled with zeros.
    charged: PerCpuCounter,
    /// Pages uncharged so far.
    uncharged: Counter,
}

impl PrivateMemory {
    /// Of a node that has none yet, whose batches copy so many pages. `None` where the system has no memory for these.
    pub(crate) fn new(copies: usize) -> Option<Self> {
        Some(Self {
            windows: Windows::default(),
            batches: AnonymousBatches::new(copies)?,
            clock: AtomicU64::new(0),
            charged: PerCpuCounter::default(),
            uncharged: Counter::new(),
        })
    }

    /// Pages have come that the node's budget was charged for.
    pub(crate) fn charged(&self, pages: u64) {
        self.charged.add(pages);
    }

    /// Pages have gone that had been charged.
    pub(crate) fn uncharged(&self, pages: u64) {
        self.uncharged.add(pages);
    }

    /// Pages that are resident and charged, about; faults have `filled` so many.
    pub(super) fn resident_pages(&self, filled: u64) -> usize {
        let came = filled + self.charged.get();
        came.saturating_sub(self.uncharged.get()) as usize
    }
}

/// The batches of a node, made once.
pub(crate) struct AnonymousBatches {
    batches: [Mutex<PrivateBatch, { order::PRIVATE_BATCH }>; CONCURRENT],
    /// Pages that each copies; none where they are written from where they are. Immutable.
    copies: usize,
    /// [`Stopped`]s that live or are about to. A hint: the batches keep evictions
    /// out.
    stops: AtomicU32,
}

/// No batch of private memory is evicted while this lives.
pub struct Stopped<'a> {
    _batches: [MutexGuard<'a, PrivateBatch, { order::PRIVATE_BATCH }>; CONCURRENT],
    stops: &'a AtomicU32,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.stops.fetch_sub(1, Relaxed);
    }
}

impl AnonymousBatches {
    /// Empty batches.
    fn new(copies: usize) -> Option<Self> {
        let all = [(); CONCURRENT].map(|()| Copies::new(copies));
        if copies > 0 && all.iter().any(Option::is_none) {
            return None;
        }
        Some(Self {
            batches: all.map(|copies| Mutex::ranked(PrivateBatch::new(copies))),
            copies,
            stops: AtomicU32::new(0),
        })
    }

    /// Bytes of the arrays, and of the copies.
    pub(crate) fn bytes(&self) -> usize {
        let pinned = size_of::<WrittenPage>();
        let page = size_of::<Victim>() + size_of::<Range<usize>>() * 3 + pinned;
        CONCURRENT * (BATCH * page + self.copies * PAGE_SIZE)
    }

    /// Waits for one, if need be. The caller has no folio locked.
    pub(crate) fn take(&self) -> MutexGuard<'_, PrivateBatch, { order::PRIVATE_BATCH }> {
        self.try_take()
            .unwrap_or_else(|| self.batches[sync::cpu() % CONCURRENT].lock())
    }

    /// One that nobody has.
    fn try_take(&self) -> Option<MutexGuard<'_, PrivateBatch, { order::PRIVATE_BATCH }>> {
        self.batches.iter().find_map(Mutex::try_lock)
    }
}

impl Node {
    /// Waits until nothing is being evicted of private memory, and keeps it so. A thread that
    /// needs memory meanwhile takes it from files first, and waits if they have none.
    pub fn stop_eviction(&self) -> Stopped<'_> {
        let AnonymousBatches { batches, stops, .. } = &self.private.batches;
        // Relaxed, all of it: a hint.
        stops.fetch_add(1, Relaxed);
        Stopped {
            _batches: core::array::from_fn(|place| batches[place].lock()),
            stops,
        }
    }

    /// True while [`stop_eviction`](Self::stop_eviction) is in force.
    pub(super) fn is_eviction_stopped(&self) -> bool {
        self.private.batches.stops.load(Relaxed) > 0
    }
}
