//! A walk over sorted ranges, in which no page comes twice.
//!
//! The caller's ranges may lie in memory that is managed itself (an allocator over a map): they
//! are looked at with no lock in hand, some at a time.

use crate::PAGE_SIZE;
use core::ops::Range;

/// Ranges that are taken over at a time.
const SOME: usize = 64;

/// How far a walk is.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The caller's first range that was not taken over.
    next: usize,
    /// Whole pages that come next: start and end, apart from each other, in order.
    coming: [(usize, usize); SOME],
    /// The first of them that was not passed.
    first: usize,
    /// Where they end.
    count: usize,
    /// Pages below this were passed, or are among those that come.
    end: usize,
    /// All of the caller's were taken over.
    is_through: bool,
}

impl Default for Cursor {
    fn default() -> Self {
        Self {
            next: 0,
            coming: [(0, 0); SOME],
            first: 0,
            count: 0,
            end: 0,
            is_through: false,
        }
    }
}

impl Cursor {
    /// Takes some of the caller's ranges over, if all of those before were passed. False if
    /// nothing comes any more. No lock is held.
    pub(super) fn take_over(&mut self, ranges: &[Range<usize>]) -> bool {
        if self.first < self.count {
            return true;
        }
        (self.first, self.count) = (0, 0);
        while let Some(range) = ranges.get(self.next) {
            let pages = whole_pages(range);
            let is_new = !range.is_empty() && pages.end > self.end;
            // A range that touches the last one joins it.
            let joins = self.count > 0 && pages.start <= self.end;
            if is_new && joins {
                self.coming[self.count - 1].1 = pages.end;
            } else if is_new && self.count < SOME {
                self.coming[self.count] = (pages.start.max(self.end), pages.end);
                self.count += 1;
            } else if is_new {
                break;
            }
            self.end = self.end.max(if is_new { pages.end } else { 0 });
            self.next += 1;
        }
        self.is_through = self.next == ranges.len();
        self.count > 0
    }

    /// The pages that come next, of those that were taken over.
    pub(super) fn rest(&self) -> Option<Range<usize>> {
        let &(start, end) = self.coming[..self.count].get(self.first)?;
        Some(start..end)
    }

    /// True if the next range is the last one.
    pub(super) fn is_last(&self) -> bool {
        self.is_through && self.first + 1 == self.count
    }

    /// Goes on behind `addr`, which is in the next range, or its end.
    pub(super) fn pass(&mut self, addr: usize) {
        let (start, end) = &mut self.coming[self.first];
        debug_assert!(*start <= addr && addr <= *end);
        *start = addr;
        if addr == *end {
            self.first += 1;
        }
    }

    /// Nothing below `addr` comes any more.
    pub(super) fn skip_to(&mut self, addr: usize) {
        while let Some(rest) = self.rest()
            && rest.start < addr
        {
            self.pass(addr.min(rest.end));
        }
        self.end = self.end.max(addr);
    }
}

/// Where the first range starts that lies behind the page at `addr`; the last address there is,
/// if none does.
pub(super) fn start_behind(ranges: &[Range<usize>], addr: usize) -> usize {
    let start = |range: &Range<usize>| range.start & !(PAGE_SIZE - 1);
    let behind = ranges.partition_point(|range| start(range) <= addr);
    ranges
        .get(behind)
        .map_or(usize::MAX & !(PAGE_SIZE - 1), start)
}

/// The pages that have the bytes of a range.
pub(super) fn whole_pages(range: &Range<usize>) -> Range<usize> {
    range.start & !(PAGE_SIZE - 1)..range.end.next_multiple_of(PAGE_SIZE)
}
