//! The memory of the slots' words and of the clusters' records: zeroed, and
//! resident only where touched, which is from the front.

use super::cluster::Cluster;
use super::{CLUSTER, MOST};
use crate::PAGE_SIZE;
use core::ops::Range;
use core::ptr::NonNull;
use sync::atomic::AtomicU32;
use sync::wait::WaitWord;

/// The words and records of all slots of a range.
pub(super) struct Table {
    /// A word a slot of `range`. Nobody waits on one: they are words that may be
    /// made of zeroed memory.
    words: NonNull<WaitWord>,
    /// A record a cluster.
    clusters: NonNull<Cluster>,
    /// Slots that are ours to give out. Immutable, as `shift`.
    range: Range<u32>,
    /// Slots of a cluster, as a power of two.
    shift: u32,
}

// SAFETY: words and records are atomics; the memory is given back only on drop.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// A table for `range`, in clusters of `slots`.
    pub(super) fn new(range: Range<u32>, slots: u32) -> Option<Self> {
        assert!(slots.is_power_of_two() && slots <= CLUSTER, "{slots} slots");
        assert!(range.len() <= MOST as usize, "slots {range:?}");
        let mut table = Self {
            words: NonNull::dangling(),
            clusters: NonNull::dangling(),
            range,
            shift: slots.ilog2(),
        };
        let (words, clusters) = table.bytes();
        let Some(memory) = sync::pages::map(words) else {
            // Nothing to give back.
            core::mem::forget(table);
            return None;
        };
        let Some(records) = sync::pages::map(clusters) else {
            core::mem::forget(table);
            // SAFETY: mapped just now; nobody knows it.
            unsafe { sync::pages::unmap(memory, words) };
            return None;
        };
        (table.words, table.clusters) = (memory.cast(), records.cast());
        Some(table)
    }

    /// Bytes of the words, and of the records.
    fn bytes(&self) -> (usize, usize) {
        let bytes = |pages: u64| pages.max(1) as usize * PAGE_SIZE;
        let (words, records) = self.pages_each(self.clusters());
        (bytes(words), bytes(records))
    }

    /// Pages that the words and the records of the first `clusters` are in.
    fn pages_each(&self, clusters: u32) -> (u64, u64) {
        let slots = (u64::from(clusters) << self.shift).min(self.range.len() as u64);
        let words = slots * size_of::<WaitWord>() as u64;
        let records = u64::from(clusters) * size_of::<Cluster>() as u64;
        let page = PAGE_SIZE as u64;
        (words.div_ceil(page), records.div_ceil(page))
    }

    /// Pages of this table that the first `clusters` need.
    pub(super) fn pages(&self, clusters: u32) -> u64 {
        let (words, records) = self.pages_each(clusters);
        words + records
    }

    /// Slots.
    pub(super) fn count(&self) -> u32 {
        self.range.len() as u32
    }

    /// Clusters; the last may be a short one.
    pub(super) fn clusters(&self) -> u32 {
        self.count().div_ceil(1 << self.shift)
    }

    /// True if the slot is ours.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.range.contains(&slot)
    }

    /// Number of the cluster that has the slot.
    pub(super) fn cluster_of(&self, slot: u32) -> u32 {
        (slot - self.range.start) >> self.shift
    }

    /// Its slots.
    pub(super) fn slots(&self, cluster: u32) -> Range<u32> {
        let start = self.range.start + (cluster << self.shift);
        // In u64: the last cluster may end where u32 does.
        let end = u64::from(start) + (1 << self.shift);
        start..end.min(self.range.end.into()) as u32
    }

    /// How many slots it has.
    pub(super) fn size(&self, cluster: u32) -> u32 {
        self.slots(cluster).len() as u32
    }

    /// What a cluster of ordinary size has.
    pub(super) fn full_size(&self) -> u32 {
        1 << self.shift
    }

    /// The slot's word.
    pub(super) fn word(&self, slot: u32) -> &AtomicU32 {
        assert!(self.contains(slot), "slot {slot}");
        // SAFETY: the table has a word for each slot of the range; zeroed memory
        // is a valid word.
        unsafe { self.words.add((slot - self.range.start) as usize).as_ref() }
    }

    /// The cluster's record.
    pub(super) fn cluster(&self, cluster: u32) -> &Cluster {
        assert!(cluster < self.clusters(), "cluster {cluster}");
        // SAFETY: the table has a record for each cluster; zeroed memory is a
        // valid record.
        unsafe { self.clusters.add(cluster as usize).as_ref() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let (words, clusters) = self.bytes();
        // SAFETY: mapped in `new`; nobody else has them any more.
        unsafe {
            sync::pages::unmap(self.words.cast(), words);
            sync::pages::unmap(self.clusters.cast(), clusters);
        }
    }
}
