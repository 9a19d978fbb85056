//! Taking pages out of a cache on purpose: truncate, invalidate, the end.
//!
//! Pinned pages stay in memory; the last pin forgets them (`fault::unpin`). Those that a file that is written to does not have any more
//! stay as zeros: their bytes are not written again.

use super::PageCache;
use super::folio::{BLOCK_BYTES, Folio, flag};
use crate::PAGE_SIZE;
use crate::cache::reads::unlocked;
use crate::lock::{MutexGuard, order};
use crate::page::{FaultError, NeverInterrupted};
use crate::reclaim::{Dirty, Sweep};
use core::ops::Range;
use sync::atomic::Ordering;

/// No pages.
const NONE: Range<usize> = 0..0;

/// Pages that are being taken out of a store, until this is dropped.
#[must_use]
pub struct TruncateGuard<'a>(&'a PageCache);

impl Drop for TruncateGuard<'_> {
    fn drop(&mut self) {
        self.0.emptied.store(0, Ordering::Release);
    }
}

impl PageCache {
    /// Keeps faults from following the store's length. A caller that makes the store of a writable cache shorter or longer
    /// holds this from before the first `truncate` until after the last.
    pub fn hold_length(&self) -> MutexGuard<'_, (), { order::LENGTH }> {
        self.length.lock()
    }

    /// True if the page to be mapped at `addr` contains an end that others have moved on. Past the
    /// known end the last page has only the program's own stores.
    pub(crate) fn ends_later(&self, addr: usize) -> bool {
        let end = self.end();
        let is_around = || self.address(end) / BLOCK_BYTES == addr / BLOCK_BYTES;
        let is_longer = || self.store.len().is_ok_and(|bytes| bytes > end);
        self.is_writable() && !end.is_multiple_of(PAGE_SIZE as u64) && is_around() && is_longer()
    }

    /// Has `take` take the pages of `range`, whole ones, out of the store, and forgets them, dirty or not. A touch of one of them
    /// meanwhile waits, and finds the store's new bytes. If it cannot be done nothing is lost. `take` is called once more where pages
    /// were in memory still: another thread may have written them after the first call, and pinned ones stay in memory, as zeros.
    pub fn empty<E>(
        &self,
        range: Range<usize>,
        mut take: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        // Bytes beside it in its first page or its last would be lost, if these could not be written.
        let ends = range.start | range.end;
        assert!(ends.is_multiple_of(PAGE_SIZE), "by whole pages");
        let _length = self.hold_length();
        let _emptied = self.begin_to_empty(range.clone());
        // Pinned, dirty, or being written: nothing comes into the range.
        let are_left = self.has_folios(&range);
        take()?;
        if are_left {
            // When this returns no write of them is under way.
            self.evict_range(range.clone(), Dirty::Dropped, range);
            take()?;
        }
        Ok(())
    }

    fn has_folios(&self, range: &Range<usize>) -> bool {
        let mut walk = self.walk(range.clone());
        while let Some(part) = self.next_part(&mut walk) {
            if self.next_folio(&part, range, |_| true).is_some() {
                return true;
            }
        }
        false
    }

    /// The store is about to end at byte `end`, if it can. All pages from there on are written back and forgotten, and a touch
    /// of one waits as long as the caller has both the result and the length. Pinned pages stay as they are until it has ended there
    /// ([`truncate`](Self::truncate)).
    pub fn empty_from(&self, end: u64) -> TruncateGuard<'_> {
        let window = self.addresses();
        let start = self.address(end.min(window.len() as u64)) & !(PAGE_SIZE - 1);
        self.begin_to_empty(start..window.end)
    }

    fn begin_to_empty(&self, range: Range<usize>) -> TruncateGuard<'_> {
        let (start, unit) = (self.addresses().start, self.emptied_unit());
        let first = (range.start - start) / unit;
        let end = (range.end - start).div_ceil(unit);
        // Release pairs with the Acquire in `is_emptied`; a folio that was inserted before is found by the walk, as in `truncate`.
        self.emptied
            .store(first as u64 | (end as u64) << 32, Ordering::Release);
        self.evict_range(range, Dirty::Written, NONE);
        TruncateGuard(self)
    }

    /// True if a page of `range` is on its way out of the store.
    pub(crate) fn is_emptied(&self, range: &Range<usize>) -> bool {
        if !self.is_writable() {
            return false;
        }
        let units = self.emptied.load(Ordering::Acquire);
        let (start, unit) = (self.addresses().start, self.emptied_unit());
        let address = |number: u64| start + number as usize * unit;
        let (first, end) = (units & u64::from(u32::MAX), units >> 32);
        units != 0 && range.start < address(end) && address(first) < range.end
    }

    /// Bytes of a unit of `emptied`: pages, or more where a window has more pages than half a word can number.
    fn emptied_unit(&self) -> usize {
        (self.addresses().len() >> 31)
            .next_power_of_two()
            .max(PAGE_SIZE)
    }

    /// Looks whether the store has become longer, and how long it is then. An error if the page at `addr` is past its end still.
    pub(crate) fn follow_length(&self, addr: usize) -> Result<(), FaultError> {
        let _length = self.hold_length();
        let bytes = self.store.len()?;
        if bytes > self.end() {
            self.truncate(bytes);
        }
        match self.offset(addr) < self.end() {
            true => Ok(()),
            false => Err(FaultError::BeyondEnd),
        }
    }

    /// The caller has just cut the file to this length. It holds the length, and calls [`truncate`](Self::truncate) next. A write
    /// back in between does not take the new end for a cut by another process.
    pub fn lower_end(&self, end: u64) {
        // Release, as in `truncate`. It changes under the length's lock only.
        self.end.store(end.min(self.end()), Ordering::Release);
    }

    /// The backing now ends at byte `end`: nothing past it is shown any more.
    /// A longer backing shows more only up to the window's size. Of one that is about to become longer this says the old end
    /// first: bytes that were stored behind that, in its page, do not become the file's.
    pub fn truncate(&self, end: u64) {
        let window = self.addresses();
        let before = self.end();
        let end = end.min((window.end - window.start) as u64);
        let mut emptied = None;
        if end > before && before < window.len() as u64 {
            // Bytes that were written past the end, in its page, must not become the file's. Until the new end is known nothing brings the
            // page in again: it would have zeros there, and a store to it would take these to where others have appended bytes.
            let last = self.address(before / PAGE_SIZE as u64 * PAGE_SIZE as u64);
            let last = last..last + PAGE_SIZE;
            match self.is_emptied(&last) {
                // The caller has just cut the file, and another process has made it longer again.
                true => self.evict_range(last, Dirty::Written, NONE),
                false => emptied = Some(self.begin_to_empty(last)),
            }
        }
        // Release pairs with the Acquire in `PageCache::end`, and a fault that
        // read the old end and inserts a folio afterwards is refused under
        // the bucket's lock, or found by the walk below. The walk skips spans
        // without folios: a folio is counted before its end is looked at.
        self.end.store(end, Ordering::Release);
        drop(emptied);
        let first = end.min(before) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        let past_end = self.address(end).next_multiple_of(PAGE_SIZE)..window.end;
        // A cut by others is told by the write-back of what is behind it. Pages that are only read are kept for who has pinned them.
        let is_own = self.is_writable() && end >= before;
        let cleared = if is_own { past_end } else { NONE };
        // Bytes behind the end are not written: the store knows the end.
        self.evict_range(self.address(first)..window.end, Dirty::Written, cleared);
    }

    /// Forgets the pages of `range`: the next touch reads them again. Dirty pages are written before; pages that cannot be
    /// written stay.
    pub fn invalidate(&self, range: Range<usize>) {
        let window = self.addresses();
        let start = range.start.max(window.start) & !(PAGE_SIZE - 1);
        self.evict_range(start..range.end.min(window.end), Dirty::Written, NONE);
    }

    /// Forgets everything, dirty pages too. No fault is under way and none begins; others may
    /// still be evicting, and are waited for.
    pub(crate) fn evict_all(&self) {
        while self.folio_count() > 0 {
            self.evict_range(self.addresses(), Dirty::Dropped, NONE);
            sync::thread::yield_now();
        }
    }

    /// Of pinned pages those of `cleared`, which the store does not have any more, lose their bytes; the others keep them.
    fn evict_range(&self, range: Range<usize>, dirty: Dirty, cleared: Range<usize>) {
        // AcqRel pairs with the count in `insert`: a later insert
        // sees the end that `truncate` has set.
        if self.folios.fetch_add(0, Ordering::AcqRel) == 0 || range.is_empty() {
            return;
        }
        let mut sweep = Some(self.node.sweep(dirty));
        let mut walk = self.walk(range.clone());
        while let Some(part) = self.next_part(&mut walk) {
            self.evict_part(part, (&range, &cleared), dirty, &mut sweep);
        }
    }

    /// Evicts the folios of a part of a block in `range`, or leaves them to `sweep` locked.
    /// Waits until reads, mappings and write-backs of a folio are over; one that is pinned goes
    /// with its last pin.
    fn evict_part<'a>(
        &'a self,
        mut part: Range<usize>,
        (range, cleared): (&Range<usize>, &Range<usize>),
        dirty: Dirty,
        sweep: &mut Option<Sweep<'a>>,
    ) {
        let is_cleared = |folio: &Folio| {
            let pages = folio.range();
            pages.start < cleared.end && cleared.start < pages.end
        };
        // One that is to go with its last pin is looked at again only to be cleared.
        let is_to_go = |folio: &Folio| !folio.is(flag::DOOMED) || is_cleared(folio);
        while let Some(folio) = self.next_folio(&part, range, is_to_go) {
            // The batch before the folio lock: a write that failed has a batch, and waits for the lock.
            sweep.get_or_insert_with(|| self.node.sweep(dirty));
            if !folio.try_lock() {
                // A folio is waited for with no other folio and no batch of reclaim in hand.
                *sweep = None;
                unlocked(self, &folio, &NeverInterrupted);
                continue;
            }
            if folio.is_writeback() {
                // Pinned or not: when this is over no write of it is under way.
                folio.unlock();
                *sweep = None;
                self.node.wait_for_writeback(&folio, &NeverInterrupted);
                continue;
            }
            // Those that the sweep has locked are still in the index.
            part.start = folio.range().end;
            if folio.is(flag::DEAD) {
                folio.unlock();
            } else if folio.is_pinned() {
                folio.change(flag::DOOMED, 0);
                if is_cleared(&folio) {
                    self.clear_part(&folio, cleared);
                }
                folio.unlock();
            } else if dirty == Dirty::Dropped && dirty_beside(&folio, range) != 0 {
                self.drop_part(&folio, range);
                folio.unlock();
            } else if let Some(sweep) = sweep {
                sweep.push(&folio);
            }
        }
    }

    /// Drops the pages of a folio that are in a range: others of it could not be written, and stay as they are. A touch of a dropped one finds
    /// it missing, as one that the program has thrown away (`fault/file/vanished.rs`). The caller holds the folio lock.
    fn drop_part(&self, folio: &Folio, range: &Range<usize>) {
        self.end_dirty(folio, dirty_beside(folio, range));
        let pages = folio.range();
        let part = pages.start.max(range.start)..pages.end.min(range.end);
        self.node.mmu.zap(core::slice::from_ref(&part));
    }

    /// Pages of a pinned folio that are in a range become zeros, and protected. The caller holds the folio lock.
    fn clear_part(&self, folio: &Folio, range: &Range<usize>) {
        self.drop_part(folio, range);
        let pages = folio.range();
        let part = pages.start.max(range.start)..pages.end.min(range.end);
        part.step_by(PAGE_SIZE)
            .for_each(|page| self.show_zeros(page));
    }
}

/// The dirty pages of a folio of which nothing is in a range.
fn dirty_beside(folio: &Folio, range: &Range<usize>) -> u32 {
    let beside = folio
        .range()
        .step_by(PAGE_SIZE)
        .filter(|page| !range.contains(page));
    folio.dirty_pages() & beside.fold(0, |bits, page| bits | folio.bit_of(page))
}
