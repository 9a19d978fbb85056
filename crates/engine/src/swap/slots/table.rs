//! The memory of the slots' words and of the clusters' records: zeroed, and
//! resident only where touched, which is from the front.

use super::cluster::Cluster;
use super::shape::Shape;
use crate::PAGE_SIZE;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use sync::atomic::AtomicU32;
use sync::wait::WaitWord;

/// The words and records of all slots.
pub(super) struct SwapMap {
    /// A word a slot. Nobody waits on one: they are words that may be made of
    /// zeroed memory.
    words: NonNull<WaitWord>,
    /// A record a cluster.
    clusters: NonNull<Cluster>,
    /// Immutable.
    shape: Shape,
}

// SAFETY: words and records are atomics; the memory is given back only on drop.
unsafe impl Send for SwapMap {}
// SAFETY: as above.
unsafe impl Sync for SwapMap {}

impl SwapMap {
    /// All free. `None` where the system has no memory.
    pub(super) fn new(shape: Shape) -> Option<Self> {
        let (words, records) = Self::mapped(&shape);
        let memory = sync::pages::map(words)?;
        let Some(clusters) = sync::pages::map(records) else {
            // SAFETY: mapped just now; nobody knows it.
            unsafe { sync::pages::unmap(memory, words) };
            return None;
        };
        Some(Self {
            words: memory.cast(),
            clusters: clusters.cast(),
            shape,
        })
    }

    /// Bytes of the two mappings.
    fn mapped(shape: &Shape) -> (usize, usize) {
        let (words, records) = shape.bytes(shape.clusters());
        (words.max(PAGE_SIZE), records.max(PAGE_SIZE))
    }

    /// The slot's word.
    pub(super) fn word(&self, slot: u32) -> &AtomicU32 {
        let place = self.shape.place(slot);
        // SAFETY: the table has a word for each of our slots, as was asserted;
        // zeroed memory is a valid word.
        unsafe { self.words.add(place).as_ref() }
    }

    /// The words of neighbouring slots, all ours.
    pub(super) fn words(&self, slots: Range<u32>) -> &[WaitWord] {
        if slots.is_empty() {
            return &[];
        }
        let (first, last) = (
            self.shape.place(slots.start),
            self.shape.place(slots.end - 1),
        );
        // SAFETY: as in `word`, for each of them; they are atomics.
        unsafe { core::slice::from_raw_parts(self.words.add(first).as_ptr(), last + 1 - first) }
    }

    /// The cluster's record.
    pub(super) fn record(&self, number: u32) -> &Cluster {
        assert!(number < self.shape.clusters(), "cluster {number}");
        // SAFETY: the table has a record for each cluster; zeroed memory is a
        // valid record.
        unsafe { self.clusters.add(number as usize).as_ref() }
    }
}

impl Deref for SwapMap {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl Drop for SwapMap {
    fn drop(&mut self) {
        let (words, records) = Self::mapped(&self.shape);
        // SAFETY: mapped in `new`; nobody else has them any more.
        unsafe {
            sync::pages::unmap(self.words.cast(), words);
            sync::pages::unmap(self.clusters.cast(), records);
        }
    }
}
