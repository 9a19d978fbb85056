//! Giving pages back that no VMA shows any more.
//!
//! Three steps: counted out (no fault can come to the pages: their VMAs are
//! gone, and nobody maps them again before the verb has let `mmap_lock` go; reclaim is waited for), zapped,
//! paid back. The zap is one for many pieces: with a second thread running each
//! costs a TLB shootdown.

use super::{Anonymous, PageState};
use crate::PAGE_SIZE;
use crate::mmu::gather::{Gathered, MmuGather, ZapPiece};
use crate::mmu::{Mmu, TABLE_SPAN};
use core::ops::Range;
use sync::Arc;
use sync::atomic::Ordering;

impl Anonymous {
    /// Counts the residents of `range`, in the window, out, and gives up all slots of
    /// it. `None` if there are no residents: there is nothing to zap.
    pub(super) fn count_out(&self, range: Range<usize>) -> Option<ZapPiece> {
        if let Some(cache) = &self.swap_cache {
            // Most reads under way are dropped here at once.
            cache.forget(range.clone());
        }
        let mut out: Option<ZapPiece> = None;
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
            let out = out.get_or_insert(ZapPiece {
                zap: zap.clone(),
                pages: 0,
            });
            out.zap.end = zap.end;
            out.pages += charged;
        }
        out
    }

    /// The same for pages of one page table: the range to zap, and the number of charged pages.
    fn count_span_out(&self, span: Range<usize>) -> Option<(Range<usize>, u64)> {
        let (residents, charged) = self.forget_span(&span);
        if residents == 0 {
            return None;
        }
        let table = self.window.leave(span.start, residents);
        Some((table.unwrap_or(span), charged))
    }

    /// Lets pages of one page table be absent, and gives up their slots: the number of residents, and that of charged ones.
    pub(super) fn forget_span(&self, span: &Range<usize>) -> (usize, u64) {
        let (mut residents, mut charged, mut stay) = (0, 0, 0);
        for page in self.page_range(span) {
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
            stay += u64::from(state.stays());
            lock.set(PageState::ABSENT);
        }
        if stay > 0 {
            // A word of all processors: seldom, and once for all.
            self.node.unpin_pages(stay);
        }
        (residents, charged)
    }
}

impl Anonymous {
    /// Takes `bytes` of memory out, from page `pgoff` on. No VMA shows it, and none is going
    /// to until `gather` is dropped.
    pub(crate) fn remove(self: &Arc<Self>, pgoff: u64, bytes: usize, gather: &mut MmuGather) {
        let start = self.window.address(pgoff, 0);
        if let Some(out) = self.count_out(start..start + bytes) {
            gather.add(self.clone(), out);
        }
    }

    /// Counts `bytes` of memory out, from page `pgoff` on, and pays them back: they are somebody else's, where they are.
    /// No VMA shows them, and nothing is evicted meanwhile.
    pub(crate) fn leave_behind(&self, pgoff: u64, bytes: usize) {
        let start = self.window.address(pgoff, 0);
        if let Some(out) = self.count_out(start..start + bytes) {
            self.zapped(&out, false);
        }
    }
}

impl Gathered for Anonymous {
    fn mmu(&self) -> &Arc<dyn Mmu> {
        &self.node.mmu
    }

    /// The pages that were counted out have been zapped: pays them back.
    fn zapped(&self, out: &ZapPiece, gone: bool) {
        if gone && out.zap == self.addresses() {
            // Relaxed: its drop comes after all other uses, and a verb that maps it again says so with `mmap_lock` for write. (It says so
            // before as well, if verbs share `mmap_lock`, beside this one. That does not count.)
            self.is_zapped.store(true, Ordering::Relaxed);
        }
        let budget = &self.node.budget;
        for span in self.window.spans(out.zap.clone()) {
            self.window.zapped_if_out(&span, budget);
        }
        self.node.private.uncharged(out.pages);
        budget.uncharge(out.pages);
    }
}

const _: () = assert!(TABLE_SPAN.is_multiple_of(PAGE_SIZE));
