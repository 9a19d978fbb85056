//! The pages of a backing that are in memory.

use super::PageCache;
use super::folio::{BLOCK_BYTES, BLOCK_PAGES, flag};
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
    /// Bytes at the front of `range`, which is whole pages, that are mapped; if they are for a `write`, so that
    /// they may be written to.
    pub(crate) fn mapped_bytes(&self, range: Range<usize>, write: bool) -> usize {
        let mut at = range.start;
        while at < range.end {
            let first = at % BLOCK_BYTES / PAGE_SIZE;
            let run = (self.mapped_pages_of_block(at, write) >> first).trailing_ones() as usize;
            at += run * PAGE_SIZE;
            if first + run < BLOCK_PAGES {
                break;
            }
        }
        at.min(range.end) - range.start
    }

    /// Which pages of the block at `addr` are mapped, or may be written to: a bit each.
    fn mapped_pages_of_block(&self, addr: usize, write: bool) -> u16 {
        let block = addr & !(BLOCK_BYTES - 1);
        let bucket = self.node.index.lock(addr, &self.node.folios);
        let mut mapped = 0;
        for folio in bucket.iter() {
            let pages = folio.range();
            if pages.start & !(BLOCK_BYTES - 1) == block && folio.is(flag::MAPPED) {
                let first = (pages.start - block) / PAGE_SIZE;
                let count = (pages.end - pages.start) / PAGE_SIZE;
                let pages = match write {
                    true => folio.dirty_pages(),
                    false => (1 << count) - 1,
                };
                mapped |= (pages << first) as u16;
            }
        }
        mapped
    }

    /// The first pages of `range`, which lies in one block, that are all cached (mapped, in
    /// frames, or on their way) or all not; and true if they are.
    pub(crate) fn cached_run(&self, range: Range<usize>) -> (Range<usize>, bool) {
        let bucket = self.node.index.lock(range.start, &self.node.folios);
        let mut end = range.end;
        for folio in bucket.iter() {
            let pages = folio.range();
            if pages.contains(&range.start) {
                return (range.start..pages.end.min(range.end), true);
            }
            if pages.start > range.start {
                end = end.min(pages.start);
            }
        }
        (range.start..end, false)
    }

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
