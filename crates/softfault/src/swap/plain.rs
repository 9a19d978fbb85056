//! Slots as they are: slot `n` is the page at byte `n` × the page size.

use super::clusters::{CLUSTER, Clusters, parts};
use super::file::PAGE;
use super::table::{BITS, SlotWords, words};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

/// Which slots have bytes.
pub(super) struct Plain {
    /// A bit a slot: it was written, and not discarded since.
    written: SlotWords,
}

impl Plain {
    /// `None` where the system has no memory.
    pub(super) fn new(slots: u64) -> Option<Self> {
        let written = SlotWords::new(slots.div_ceil(BITS) as usize)?;
        Some(Self { written })
    }

    /// Takes the space of slots that are about to be written.
    pub(super) fn hold(&self, clusters: &Clusters, slots: Range<u64>) -> Result<(), i32> {
        let mut result = Ok(());
        for part in parts(slots, CLUSTER / PAGE) {
            let mut more = 0;
            for (word, mask) in words(part.clone()) {
                // Relaxed: a slot is had by one thread at a time.
                let before = self.written[word].fetch_or(mask, Relaxed);
                more += (mask & !before).count_ones();
            }
            let held = clusters.hold(part.start * PAGE..part.end * PAGE, more);
            result = result.and(held);
        }
        result
    }

    /// Gives it back.
    pub(super) fn release(&self, clusters: &Clusters, slots: Range<u64>) {
        for part in parts(slots, CLUSTER / PAGE) {
            let mut fewer = 0;
            for (word, mask) in words(part.clone()) {
                // Relaxed: as in `hold`.
                let before = self.written[word].fetch_and(!mask, Relaxed);
                fewer += (mask & before).count_ones();
            }
            clusters.release(part.start * PAGE, fewer);
        }
    }
}
