//! Pinning: pages that stay until they are let go, with errors as values.

use super::{FaultError, FaultFlags, mmu_error};
use crate::PAGE_SIZE;
use crate::cache::PageCache;
use crate::cache::folio::{Folio, flag};
use crate::cache::reads::unlocked;
use crate::fault::{FaultIn, Outcome, handle};
use crate::mm::AddressSpace;
use crate::page::{Interrupt, NeverInterrupted};
use crate::reclaim::{Dirty, Sweep};
use core::ops::Range;
use core::slice;
use sync::Arc;

/// How far a pin got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// All pages are mapped and stay.
    Done,
    /// Pinned up to this address; go on from there.
    Interrupted(usize),
    /// Nothing is pinned.
    Failed(FaultError),
}

/// Maps the pages of `range` from `from` on and takes a reference to each of
/// their folios. `range` is pinned up to `from`, which is where a folio of it
/// ends, or its start.
pub fn pin(
    space: &AddressSpace,
    cache: &Arc<PageCache>,
    range: Range<usize>,
    from: usize,
    interrupt: &dyn Interrupt,
) -> Pin {
    let mut addr = from;
    let rest = from..range.end;
    let mut ahead = FaultIn::new(false);
    while addr < range.end {
        if rest.len() > PAGE_SIZE {
            ahead.keep_ahead_of(addr, slice::from_ref(&rest), space);
        }
        if let Some(folio) = cache.find(addr)
            && folio.try_lock()
        {
            // Under the folio lock: truncate and invalidate spare pinned
            // folios, and take the others. Its read may have found the file's end before the page since the look-up.
            let stays = folio.state() & (flag::MAPPED | flag::DEAD) == flag::MAPPED
                && folio.range().contains(&addr);
            if stays {
                cache.settle_expected(&folio);
                cache.pin_folio(&folio);
                addr = folio.range().end;
            }
            folio.unlock();
            if stays {
                folio.leak();
                continue;
            }
        }
        match handle(space, addr, FaultFlags::default(), interrupt) {
            Outcome::Mapped => {}
            Outcome::Interrupted => return Pin::Interrupted(addr),
            Outcome::Error(error) => {
                unpin(cache, range.start..addr);
                return Pin::Failed(error);
            }
        }
    }
    Pin::Done
}

/// Lets system calls write to the dirty pages of `range`, which is pinned. Dirty they are, but they may have been protected
/// since they were written to: with the whole window, or by a write-back that failed. While they are
/// pinned nobody does that again.
pub fn open_to_writes(cache: &PageCache, range: Range<usize>) -> Result<(), FaultError> {
    let mut addr = range.start & !(PAGE_SIZE - 1);
    while addr < range.end {
        let folio = cache.find(addr).expect("a pinned folio stays");
        while !folio.try_lock() {
            unlocked(cache, &folio, &NeverInterrupted);
        }
        let end = folio.range().end.min(range.end);
        let mut pages = (addr..end).step_by(PAGE_SIZE);
        let opened = pages.try_for_each(|page| match folio.dirty_pages() & folio.bit_of(page) {
            0 => Ok(()),
            _ => (cache.node.mmu).make_writable(cache.window.reservation(), page),
        });
        cache.note_writable(&folio);
        folio.unlock();
        opened.map_err(mmu_error)?;
        addr = end.next_multiple_of(PAGE_SIZE);
    }
    Ok(())
}

/// Lets the pages of `range` go again. Pages that were truncated or invalidated
/// meanwhile are forgotten now.
pub fn unpin(cache: &PageCache, range: Range<usize>) {
    let mut addr = range.start;
    while addr < range.end {
        let folio = cache.find(addr).expect("a pinned folio stays");
        addr = folio.range().end;
        let sweep = lock_to_unpin(cache, &folio);
        let last = cache.unpin_folio(&folio);
        // The pin's reference; ours is left.
        cache.node.put(&folio);
        match sweep {
            Some(mut sweep) if last => {
                // It may stay, if it is dirty and cannot be written: then it goes as any other.
                folio.change(0, flag::DOOMED);
                sweep.push(&folio);
            }
            _ => folio.unlock(),
        }
    }
}

/// Locks a folio that is pinned. With a sweep if it is to be forgotten; no page of it is being written then.
fn lock_to_unpin<'a>(cache: &'a PageCache, folio: &Folio) -> Option<Sweep<'a>> {
    loop {
        // The batch before the folio lock, as in `PageCache::truncate`.
        let is_doomed = folio.is(flag::DOOMED);
        let sweep = is_doomed.then(|| cache.node.sweep(Dirty::Written));
        if !folio.try_lock() {
            drop(sweep);
            unlocked(cache, folio, &NeverInterrupted);
        } else if folio.is(flag::DOOMED) != is_doomed {
            folio.unlock();
        } else if is_doomed && folio.is_writeback() {
            folio.unlock();
            drop(sweep);
            cache.node.wait_for_writeback(folio, &NeverInterrupted);
        } else {
            return sweep;
        }
    }
}
