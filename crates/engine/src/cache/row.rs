//! Rows: the folios of a page table's span whose frames are one chunk, each in the place that its address has in the span. The
//! chunk's memory can go to the window as it is ([`Mmu::move_in`](crate::Mmu::move_in)).

use super::folio::{BLOCK_BYTES, BLOCK_PAGES, Folio, NO_FRAME};
use super::frames::CHUNK_PAGES;
use super::{FolioRef, PageCache};
use crate::PAGE_SIZE;
use crate::mmu::TABLE_SPAN;
use core::ops::Range;
use sync::atomic::Ordering;

/// Folios of a row.
pub(crate) const ROW: usize = TABLE_SPAN / BLOCK_BYTES;

/// Chunks that read-ahead may have, where it keeps one for each span.
const LEAST_CHUNKS: usize = 4;

const _: () = assert!(CHUNK_PAGES * PAGE_SIZE == TABLE_SPAN && ROW * BLOCK_PAGES == CHUNK_PAGES);

/// The span of `addr`.
pub(crate) fn span(addr: usize) -> Range<usize> {
    let start = addr & !(TABLE_SPAN - 1);
    start..start + TABLE_SPAN
}

/// The first frame of the row that a folio is in by where its frames are. The caller has it locked, or asks `Frames` whether it
/// is a row.
pub(crate) fn first_frame(folio: &Folio) -> Option<u32> {
    // Relaxed: see above.
    let frame = folio.frame.load(Ordering::Relaxed);
    let range = folio.range();
    let place = (range.start % TABLE_SPAN / PAGE_SIZE) as u32;
    let is_block = folio.pages() == BLOCK_PAGES && range.start.is_multiple_of(BLOCK_BYTES);
    let in_place = frame != NO_FRAME && frame % CHUNK_PAGES as u32 == place;
    (is_block && in_place).then(|| frame - place)
}

impl PageCache {
    /// For a folio that is to be read at `range`, if it may become a part of a row: the frame of a neighbour that is a part of that
    /// row already, if there is one.
    pub(super) fn row_beside(&self, range: &Range<usize>) -> Option<Option<u32>> {
        let has_room = self.node.readahead_frames() >= LEAST_CHUNKS * CHUNK_PAGES;
        if !has_room || !self.window.takes_moves() || range.len() != BLOCK_BYTES {
            return None;
        }
        let span = span(range.start);
        let window = self.addresses();
        if span.end > window.end || self.window.residents(range.start) > 0 {
            return None;
        }
        let of = |neighbour: Option<FolioRef<'_>>| first_frame(&*neighbour?);
        let before = (span.start < range.start).then(|| self.find(range.start - PAGE_SIZE));
        let behind = (range.end < span.end).then(|| self.find(range.end));
        Some(of(before.flatten()).or_else(|| of(behind.flatten())))
    }
}
