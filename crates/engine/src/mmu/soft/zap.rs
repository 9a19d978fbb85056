//! Zapping: taking pages out in batches, with one shootdown for all.

use super::chain::Chain;
use super::entry::Pte;
use super::frames::ZEROS;
use super::tables::{PteTable, Tables};
use crate::PAGE_SIZE;
use core::ops::Range;

/// Shared frames that one shootdown can be for. (Those that nobody shares are
/// any number: they are linked with each other.)
const SHARED: usize = 64;

/// Pages and tables that were taken out and may still be in use.
pub(super) struct Detached {
    /// To these ours was the only reference.
    only: Chain,
    /// A reference to each of these.
    shared: [u32; SHARED],
    shared_count: usize,
}

impl Detached {
    pub fn new() -> Self {
        Self {
            only: Chain::default(),
            shared: [ZEROS; SHARED],
            shared_count: 0,
        }
    }

    /// True if nothing was taken out.
    pub fn is_empty(&self) -> bool {
        self.only.is_empty() && self.shared_count == 0
    }

    /// Adds a reference to a frame.
    pub fn push<const N: usize>(&mut self, tables: &Tables<N>, frame: u32) {
        if tables.frames.is_only(frame) {
            return self.only.push(&tables.frames, frame);
        }
        if self.shared_count == SHARED {
            tables.free_detached(core::mem::replace(self, Self::new()));
        }
        self.shared[self.shared_count] = frame;
        self.shared_count += 1;
    }
}

impl<const N: usize> Tables<N> {
    /// Takes out all pages of the ranges, and leaves that are empty then.
    /// Nobody uses any of them when it returns.
    pub fn zap(&self, ranges: &[Range<usize>]) {
        let mut detached = Detached::new();
        let mut any = false;
        for range in ranges {
            self.for_each_leaf(range.clone(), |leaf, part| {
                any = true;
                self.zap_leaf(leaf, part, &mut detached);
            });
        }
        // Where there was no leaf there was no page for anybody to know.
        if any {
            self.free_detached(detached);
        }
    }

    fn zap_leaf(&self, mut leaf: PteTable<'_, N>, part: Range<usize>, detached: &mut Detached) {
        for page in part.step_by(PAGE_SIZE) {
            if leaf.used() == 0 {
                break;
            }
            let entry: Pte = leaf.entry(page);
            if entry.is_present() {
                leaf.clear(page);
                if let Some(frame) = entry.owned() {
                    detached.push(self, frame);
                }
            }
        }
        if leaf.used() == 0 {
            let table = leaf.take_out();
            self.count_freed();
            detached.push(self, table);
        }
    }

    /// Frees pages and tables that were taken out, when no core uses them any more.
    pub(super) fn free_detached(&self, detached: Detached) {
        self.cores.shootdown();
        for &frame in &detached.shared[..detached.shared_count] {
            self.frames.put(frame);
        }
        if !detached.only.is_empty() {
            self.frames.free(detached.only);
        }
    }

    /// Takes out the tables that served `window` alone: those that cover none
    /// but addresses `between` its neighbours. It has no pages any more, and
    /// nobody reserves or releases windows of its part meanwhile. The caller frees them.
    pub(super) fn detach_tables(&self, window: Range<usize>, between: Range<usize>) -> Detached {
        let mut detached = Detached::new();
        for level in 1..super::tables::LEVELS - 1 {
            let span = Self::span(level);
            let mut start = window.start & !(span - 1);
            while start < window.end {
                let next = start + span;
                let alone = between.start <= start && next <= between.end;
                start = match self.slot(start, level + 1) {
                    Err(missing_to) => missing_to.max(next),
                    Ok(above) => {
                        if alone && let Some(table) = self.take_out(above) {
                            detached.push(self, table);
                        }
                        next
                    }
                };
            }
        }
        detached
    }
}
