//! Free slots in a row.

use super::table::SwapMap;
use core::ops::Range;
use sync::atomic::Ordering::Acquire;
use sync::wait::WaitWord;

/// A run that a cluster has.
#[derive(Debug, Default)]
pub(super) struct Best {
    pub(super) run: Range<u32>,
    /// Slots of the longest run that is left when this one is taken.
    pub(super) left: u32,
}

impl SwapMap {
    /// The free slots at the start of `slots`, up to `most`.
    fn run_at(&self, slots: Range<u32>, most: u32) -> Range<u32> {
        let end = slots.end.min(slots.start.saturating_add(most));
        // Acquire pairs with the Release of all puts since the slot was given out:
        // they are read-modify-writes, or the last of them.
        let is_used = |word: &WaitWord| word.load(Acquire) != 0;
        let length = self.words(slots.start..end).iter().position(is_used);
        slots.start..length.map_or(end, |length| slots.start + length as u32)
    }

    /// The first run of `slots` that has `least`, up to `most`.
    pub(super) fn next_run(&self, slots: Range<u32>, least: u32, most: u32) -> Option<Range<u32>> {
        let mut start = slots.start;
        while start < slots.end {
            let run = self.run_at(start..slots.end, most);
            if run.len() >= least as usize {
                return Some(run);
            }
            // The one behind is in use.
            start = run.end + 1;
        }
        None
    }

    /// The first run of the cluster that has `most` slots, or its longest.
    pub(super) fn best_run(&self, cluster: u32, most: u32) -> Best {
        let slots = self.slots(cluster);
        let mut best = Best::default();
        let mut start = slots.start;
        while start < slots.end {
            let whole = self.run_at(start..slots.end, u32::MAX);
            // The one behind is in use, or was.
            start = whole.end.saturating_add(1);
            let length = whole.len() as u32;
            let run = whole.start..whole.start + length.min(most);
            if run.len() > best.run.len() {
                let left = length - run.len() as u32;
                best = Best {
                    left: best.left.max(best.run.len() as u32).max(left),
                    run,
                };
            } else {
                best.left = best.left.max(length);
            }
        }
        best
    }
}
