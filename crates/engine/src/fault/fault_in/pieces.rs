//! Pieces of ranges that are not there yet, in line: first in, first out, and bounded.

use crate::PAGE_SIZE;
use core::ops::Range;

/// Pieces in the queue at most. Each is a read as a rule: four times the number that keeps a disk busy, since the
/// first in the queue is waited for while others complete, and half of a ring's capacity.
const DEPTH: usize = 128;
/// Pieces whose reads are worth a call of the store.
const BATCH: usize = 32;

/// The line.
#[derive(Debug)]
pub(super) struct Pieces {
    /// Start and end. A ring.
    places: [(usize, usize); DEPTH],
    /// The place of the first.
    first: usize,
    count: usize,
    /// Pages of all of them.
    pages: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self {
            places: [(0, 0); DEPTH],
            first: 0,
            count: 0,
            pages: 0,
        }
    }
}

impl Pieces {
    pub(super) fn first(&self) -> Option<Range<usize>> {
        let (start, end) = self.places[self.first];
        (self.count > 0).then_some(start..end)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Pages of all that are in line.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == DEPTH
    }

    /// True if so many more can come that their reads are worth a call.
    pub(super) fn has_room_for_batch(&self) -> bool {
        self.count + BATCH <= DEPTH
    }

    /// Puts a piece at the end, which is not full.
    pub(super) fn push(&mut self, piece: Range<usize>) {
        assert!(!self.is_full() && !piece.is_empty(), "a piece in line");
        self.places[(self.first + self.count) % DEPTH] = (piece.start, piece.end);
        self.count += 1;
        self.pages += piece.len() / PAGE_SIZE;
    }

    /// Takes the first away.
    pub(super) fn pop(&mut self) {
        let piece = self.first().expect("a piece in line");
        self.pages -= piece.len() / PAGE_SIZE;
        self.first = (self.first + 1) % DEPTH;
        self.count -= 1;
    }

    /// Takes all pages below `addr` away.
    pub(super) fn skip_to(&mut self, addr: usize) {
        while let Some(piece) = self.first() {
            if addr < piece.end {
                let passed = addr.saturating_sub(piece.start);
                self.places[self.first].0 += passed;
                self.pages -= passed / PAGE_SIZE;
                break;
            }
            self.pop();
        }
    }
}
