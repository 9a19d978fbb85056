//! How many slots there are, and which clusters they are in.

use super::cluster::Cluster;
use super::{CLUSTER, MOST};
use crate::PAGE_SIZE;
use core::ops::Range;
use sync::wait::WaitWord;

/// The slots of a device, cut in clusters.
pub(super) struct Shape {
    /// Slots that are ours to give out.
    range: Range<u32>,
    /// Slots of a cluster, as a power of two.
    shift: u32,
}

impl Shape {
    pub(super) fn new(range: Range<u32>, cluster: u32) -> Self {
        let shift = cluster.ilog2();
        assert!(1 << shift == cluster && cluster <= CLUSTER, "{cluster}");
        assert!(range.len() <= MOST as usize, "slots {range:?}");
        Self { range, shift }
    }

    /// Slots.
    pub(super) fn count(&self) -> u32 {
        self.range.len() as u32
    }

    /// True if the slot is ours.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.range.contains(&slot)
    }

    /// The slot's place among ours.
    pub(super) fn place(&self, slot: u32) -> usize {
        assert!(self.contains(slot), "slot {slot}");
        (slot - self.range.start) as usize
    }

    /// Clusters; the last may be a short one.
    pub(super) fn clusters(&self) -> u32 {
        self.count().div_ceil(self.cluster())
    }

    /// Slots of each but the last.
    pub(super) fn cluster(&self) -> u32 {
        1 << self.shift
    }

    /// Number of the cluster that has the slot.
    pub(super) fn number_of(&self, slot: u32) -> u32 {
        (slot - self.range.start) >> self.shift
    }

    /// Slots of a cluster.
    pub(super) fn slots(&self, number: u32) -> Range<u32> {
        let start = self.range.start + (number << self.shift);
        start..self.range.end.min(start.saturating_add(self.cluster()))
    }

    /// How many they are.
    pub(super) fn size(&self, number: u32) -> u32 {
        self.slots(number).len() as u32
    }

    /// Pages that the words and the records of the first `clusters` are in.
    pub(super) fn pages(&self, clusters: u32) -> u64 {
        let (words, records) = self.bytes(clusters);
        let pages = |bytes: usize| (bytes / PAGE_SIZE) as u64;
        pages(words) + pages(records)
    }

    /// Bytes of these words, and of the records: whole pages.
    pub(super) fn bytes(&self, clusters: u32) -> (usize, usize) {
        let slots = self.range.len().min((clusters as usize) << self.shift);
        let words = slots * size_of::<WaitWord>();
        let records = clusters as usize * size_of::<Cluster>();
        (
            words.next_multiple_of(PAGE_SIZE),
            records.next_multiple_of(PAGE_SIZE),
        )
    }
}
