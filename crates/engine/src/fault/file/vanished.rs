//! A fault on a page of a file that is taken for mapped: somebody's was faster, or the
//! program threw the page away ([`spurious`](crate::cache::spurious)).

use super::{Fault, FaultError, Wait, mmu_error};
use crate::PAGE_SIZE;
use crate::budget::Need;
use crate::cache::folio::flag;
use crate::cache::spurious::UNREADABLE;
use crate::cache::{FolioRef, OnTruncate, PageCache};
use crate::mmu::Access;
use sync::Arc;

/// A fault at `addr`, a page of a mapped folio of a file.
// Seldom, and its variables would be on the handler's stack in all faults.
#[inline(never)]
pub(super) fn fault(cache: &Arc<PageCache>, folio: FolioRef<'_>, addr: usize) -> Fault {
    let node = &cache.node;
    node.stats.spurious.add(1);
    if !node.spurious_faults.is_second(addr) {
        return Fault::Mapped;
    }
    if !folio.try_lock() {
        return Fault::Retry(Wait::folio(cache, folio));
    }
    // Nobody maps it or takes it out while it is locked.
    let is_mapped = folio.state() & (flag::MAPPED | flag::DEAD) == flag::MAPPED;
    let is_gone = is_mapped && node.mmu.is_missing(addr);
    if is_gone && folio.is_writeback() {
        // The store's bytes of it are older than those that are being written.
        folio.unlock();
        return Fault::Retry(Wait::writeback(cache, folio));
    }
    if is_gone {
        let dirty = folio.dirty_pages();
        if dirty & folio.bit_of(addr) != 0 {
            // The bytes written to it are gone; it comes back protected.
            cache.end_dirty(&folio, dirty & !folio.bit_of(addr));
        }
        // It comes back as the file has it now. The frames of a folio with expected writes have it as it was, and
        // a write of the old bytes would pass for none.
        cache.settle_expected(&folio);
    }
    let fault = match is_gone {
        true if folio.is(flag::HOLE) => fill_hole(cache, addr),
        true => read_again(cache, addr),
        false if is_mapped && node.mmu.is_lost(addr) => Fault::Error(UNREADABLE),
        false => Fault::Mapped,
    };
    folio.unlock();
    fault
}

fn fill_hole(cache: &PageCache, addr: usize) -> Fault {
    let zeroed = (cache.node.mmu).zero(cache.window.reservation(), addr, PAGE_SIZE);
    zeroed.map_or_else(|error| Fault::Error(mmu_error(error)), |()| Fault::Mapped)
}

/// Reads a page into the window, which counts it already. Its state does not change: it
/// may be pinned.
fn read_again(cache: &Arc<PageCache>, addr: usize) -> Fault {
    let node = &cache.node;
    let Some(frame) = node.frames.alloc(1, node.demand_frames(), 0) else {
        return Fault::Retry(Wait::memory(cache, Need::Frame));
    };
    let bytes = node.frames.address(frame);
    // SAFETY: the frame is ours.
    let read = unsafe { cache.store.read(cache.offset(addr), bytes, PAGE_SIZE) };
    let fault = match read {
        Err(error) => Fault::Error(error.into()),
        Ok(0) if cache.on_truncate == OnTruncate::Error => Fault::Error(FaultError::BeyondEnd),
        Ok(arrived) => {
            let arrived = cache.known_bytes(addr, arrived.min(PAGE_SIZE));
            // SAFETY: the rest of the frame.
            unsafe { bytes.add(arrived).write_bytes(0, PAGE_SIZE - arrived) };
            let to = (cache.window.reservation(), addr);
            let page = core::ptr::slice_from_raw_parts(bytes.cast_const(), PAGE_SIZE);
            // SAFETY: the frame has the page's bytes; the page lies in the window.
            match unsafe { node.mmu.copy(to, page, Access::ReadOnly) } {
                Ok(()) => Fault::Mapped,
                Err(error) => Fault::Error(mmu_error(error)),
            }
        }
    };
    node.frames.free(frame, 1);
    node.budget.notify_release();
    fault
}
