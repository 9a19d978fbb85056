//! What of a backing is in memory.

use super::PageCache;
use super::folio::{BLOCK_BYTES, flag};
use crate::PAGE_SIZE;
use core::ops::Range;

/// How many pages of a range are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages in the range.
    pub pages: usize,
    /// Pages in the window: a touch costs nothing.
    pub mapped: usize,
    /// Pages in frames: a touch costs a copy.
    pub cached: usize,
    /// Pages being read.
    pub reading: usize,
}

impl PageCache {
    /// Counts the pages of `range` by where they are. Walks the range.
    pub fn residency(&self, range: Range<usize>) -> Residency {
        let mut found = Residency {
            pages: (range.end.next_multiple_of(PAGE_SIZE) - (range.start & !(PAGE_SIZE - 1)))
                / PAGE_SIZE,
            ..Residency::default()
        };
        let mut block = range.start & !(BLOCK_BYTES - 1);
        while block < range.end {
            let bucket = self.node.index.lock(block, &self.node.folios);
            for folio in bucket.iter() {
                let pages = folio.range();
                if pages.start & !(BLOCK_BYTES - 1) != block {
                    continue;
                }
                let start = pages.start.max(range.start & !(PAGE_SIZE - 1));
                let end = pages.end.min(range.end.next_multiple_of(PAGE_SIZE));
                let count = end.saturating_sub(start) / PAGE_SIZE;
                let state = folio.state();
                if state & flag::MAPPED != 0 {
                    found.mapped += count;
                } else if state & flag::UPTODATE != 0 {
                    found.cached += count;
                } else {
                    found.reading += count;
                }
            }
            drop(bucket);
            block += BLOCK_BYTES;
        }
        found
    }
}
