//! Giving pages back that no VMA shows any more.
//!
//! Three steps: counted out (no fault can come to the pages: their VMAs are
//! gone, and `mmap_lock` is still held for write; reclaim is waited for), zapped,
//! paid back. The zap is one for many pieces: with a second thread running each
//! costs a TLB shootdown.

use super::{Anonymous, PageState};
use crate::PAGE_SIZE;
use crate::mmu::TABLE_SPAN;
use core::ops::Range;
use sync::Arc;

/// Pieces a batch.
const PIECES: usize = 32;

/// What was counted out of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Out {
    /// What to zap. A page table's whole range is in it if and only if the
    /// range was not empty and is now.
    pub(super) zap: Range<usize>,
    /// Pages that were charged.
    pages: u64,
}

impl Anonymous {
    /// Counts the residents of `range`, in the window, out, and gives up all slots of
    /// it. `None` if there are no residents: there is nothing to zap.
    pub(super) fn count_out(&self, range: Range<usize>) -> Option<Out> {
        if let Some(cache) = &self.cache {
            // Most of what is being read goes here at once.
            cache.invalidate(range.clone());
        }
        let mut out: Option<Out> = None;
        let used = |addr: usize| {
            let page = self.pages.next_used(self.page(addr));
            self.window.address(page as u64, 0)
        };
        let mut next = range.start;
        while next < range.end {
            let span = next.max(used(next));
            if span >= range.end {
                break;
            }
            let end = ((span & !(TABLE_SPAN - 1)) + TABLE_SPAN).min(range.end);
            next = end;
            let Some((zap, charged)) = self.count_span_out(span..end) else {
                continue;
            };
            let out = out.get_or_insert(Out {
                zap: zap.clone(),
                pages: 0,
            });
            out.zap.end = zap.end;
            out.pages += charged;
        }
        out
    }

    /// The same for pages of one page table: what to zap, and how many were charged.
    fn count_span_out(&self, span: Range<usize>) -> Option<(Range<usize>, u64)> {
        let (mut residents, mut charged) = (0, 0);
        for page in self.page_range(&span) {
            if self.pages.is_unused(page) {
                continue;
            }
            let mut lock = self.pages.lock(page);
            let state = lock.state();
            residents += usize::from(state.is_resident());
            charged += u64::from(state.is_resident() && !state.is_zero());
            if !state.is_resident() {
                self.forget_read(page);
            }
            self.put_slot(lock.slot());
            lock.set_slot(None);
            self.node.unpin_pages(state.stays().into());
            lock.set(PageState::ABSENT);
        }
        if residents == 0 {
            return None;
        }
        let table = self.window.leave(span.start, residents);
        Some((table.unwrap_or(span), charged))
    }

    /// What was counted out has been zapped: pays it back.
    pub(super) fn zapped(&self, out: &Out) {
        let budget = &self.node.budget;
        for span in self.window.spans(out.zap.clone()) {
            self.window.zapped_if_out(&span, budget);
        }
        self.node.anonymous_out.add(out.pages);
        budget.uncharge(out.pages);
    }
}

/// Pieces of anonymous memory that are on their way out.
pub struct Removal {
    pieces: [Option<(Arc<Anonymous>, Out)>; PIECES],
    count: usize,
}

impl Removal {
    pub(crate) fn new() -> Self {
        Self {
            pieces: [const { None }; PIECES],
            count: 0,
        }
    }

    /// Takes `bytes` of memory out, from page `pgoff` on. No VMA shows it, and none is going
    /// to until this is dropped.
    pub(crate) fn add(&mut self, anon: &Arc<Anonymous>, pgoff: u64, bytes: usize) {
        let start = anon.window.address(pgoff, 0);
        let Some(out) = anon.count_out(start..start + bytes) else {
            return;
        };
        // One batch is of one page tables.
        let other = self.pieces[..self.count].first().and_then(Option::as_ref);
        if other.is_some_and(|(other, _)| !Arc::ptr_eq(&other.node.mmu, &anon.node.mmu)) {
            self.flush();
        }
        self.pieces[self.count] = Some((anon.clone(), out));
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
        if let Some((anon, _)) = pieces.first().and_then(Option::as_ref) {
            anon.node.mmu.zap(&ranges[..pieces.len()]);
        }
        for (anon, out) in pieces.iter_mut().filter_map(Option::take) {
            anon.zapped(&out);
        }
        self.count = 0;
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.flush();
    }
}

const _: () = assert!(TABLE_SPAN.is_multiple_of(PAGE_SIZE));
