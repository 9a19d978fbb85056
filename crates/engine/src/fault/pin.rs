//! Pinning: pages that stay until they are let go, with errors as values.

use super::{FaultError, FaultFlags, Interrupt, NeverInterrupted, Outcome, Wait, Waited};
use super::{handle, prefetch, unlocked};
use crate::PAGE_SIZE;
use crate::budget::FLOOR;
use crate::cache::PageCache;
use crate::cache::folio::flag;
use crate::mm::AddressSpace;
use crate::reclaim::Need;
use core::ops::Range;
use sync::Arc;

/// Waits in a row in which nobody gave anything back, after which nobody will: a second.
const STANDSTILL: u32 = 100;
/// How long a pin waits where others take what it makes room for.
const PATIENCE_NS: u64 = 30_000_000_000;

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
    leaving(FLOOR, space, cache, range, from, interrupt)
}

/// As [`pin`], for a page that the caller unpins at once and without a fault in between:
/// it may take of what pins leave to faults, as a fault does.
pub fn pin_briefly(
    space: &AddressSpace,
    cache: &Arc<PageCache>,
    range: Range<usize>,
    from: usize,
    interrupt: &dyn Interrupt,
) -> Pin {
    leaving(0, space, cache, range, from, interrupt)
}

/// Pins what leaves so many pages of the budget free.
fn leaving(
    floor: u64,
    space: &AddressSpace,
    cache: &Arc<PageCache>,
    range: Range<usize>,
    from: usize,
    interrupt: &dyn Interrupt,
) -> Pin {
    let mut addr = from;
    let mut ahead = from;
    // Since when there was no room for another pin, and waits in which nothing came back.
    let mut short_since = None;
    let mut standstill = 0;
    while addr < range.end {
        if addr >= ahead && range.end - addr > PAGE_SIZE {
            ahead = prefetch(cache, addr..range.end).max(addr + PAGE_SIZE);
        }
        if let Some(folio) = cache.find(addr)
            && folio.try_lock()
        {
            // Under the folio lock: truncate and invalidate spare what is
            // pinned, and take what is not.
            let is_mapped = folio.state() & (flag::MAPPED | flag::DEAD) == flag::MAPPED;
            // It is charged as what can be evicted, and cannot be from now on.
            let leaves_floor = cache.node.budget.has_free(floor);
            if is_mapped && leaves_floor {
                folio.pin();
                addr = folio.range().end;
            }
            folio.unlock();
            if is_mapped && leaves_floor {
                folio.leak();
                (short_since, standstill) = (None, 0);
                continue;
            }
            if is_mapped {
                // The reference keeps the folio where it is meanwhile.
                let now = cache.node.clock.now_ns();
                let waited = now.saturating_sub(*short_since.get_or_insert(now));
                if standstill >= STANDSTILL || waited >= PATIENCE_NS {
                    unpin(cache, range.start..addr);
                    return Pin::Failed(FaultError::NoMemory);
                }
                match Wait::memory(cache, Need::Pages(floor as usize)).wait(interrupt) {
                    Waited::Interrupted => return Pin::Interrupted(addr),
                    Waited::Standstill => standstill += 1,
                    Waited::Ready | Waited::NoRoom => standstill = 0,
                }
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

/// Lets the pages of `range` go again. What was truncated or invalidated
/// meanwhile is forgotten now.
pub fn unpin(cache: &PageCache, range: Range<usize>) {
    let mut addr = range.start;
    while addr < range.end {
        let folio = cache.find(addr).expect("a pinned folio stays");
        addr = folio.range().end;
        while !folio.try_lock() {
            unlocked(cache, &folio, &NeverInterrupted);
        }
        let last = folio.unpin();
        // The pin's reference; ours is left.
        cache.node.put(&folio);
        if last && folio.is(flag::DOOMED) {
            cache.node.sweep().push(&folio);
        } else {
            folio.unlock();
        }
    }
}
