//! Zapping many pieces at once: Linux's `mmu_gather`.
//!
//! With a second thread running each zap costs a TLB shootdown. So pages are counted out
//! piece by piece, zapped in one call, and paid back after it.

use super::Mmu;
use core::ops::Range;
use sync::Arc;

/// Pieces a batch.
const PIECES: usize = 32;

/// Pages that were counted out of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZapPiece {
    /// The range to zap. A page table's whole range is in it if and only if the
    /// range was not empty and is now.
    pub zap: Range<usize>,
    /// Pages that were charged.
    pub pages: u64,
}

/// Whose pages are gathered.
pub trait Gathered: Send + Sync {
    /// The page tables that have them.
    fn mmu(&self) -> &Arc<dyn Mmu>;

    /// The pages that were counted out have been zapped; `gone`: certainly all of them.
    fn zapped(&self, out: &ZapPiece, gone: bool);
}

/// Pieces that are on their way out: zapped at the latest when this is dropped.
pub struct MmuGather {
    pieces: [Option<(Arc<dyn Gathered>, ZapPiece)>; PIECES],
    count: usize,
}

impl MmuGather {
    pub(crate) fn new() -> Self {
        Self {
            pieces: [const { None }; PIECES],
            count: 0,
        }
    }

    /// Adds pages that were counted out, and that no VMA shows.
    pub(crate) fn add(&mut self, of: Arc<dyn Gathered>, out: ZapPiece) {
        // One batch is of one page tables.
        let other = self.pieces[..self.count].first().and_then(Option::as_ref);
        if other.is_some_and(|(other, _)| !Arc::ptr_eq(other.mmu(), of.mmu())) {
            self.flush();
        }
        self.pieces[self.count] = Some((of, out));
        self.count += 1;
        if self.count == PIECES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let pieces = &mut self.pieces[..self.count];
        let mut ranges = [const { 0..0 }; PIECES];
        for (range, piece) in ranges.iter_mut().zip(pieces.iter().flatten()) {
            *range = piece.1.zap.clone();
        }
        let mut gone = false;
        if let Some((of, _)) = pieces.first().and_then(Option::as_ref) {
            gone = of.mmu().zap_all(&ranges[..pieces.len()]);
        }
        for (of, out) in pieces.iter_mut().filter_map(Option::take) {
            of.zapped(&out, gone);
        }
        self.count = 0;
    }
}

impl Drop for MmuGather {
    fn drop(&mut self) {
        self.flush();
    }
}
