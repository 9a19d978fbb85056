//! Faults on pages that the engine takes for mapped.
//!
//! As a rule somebody else's fault was faster, and the touch finds the page. But the
//! program may have thrown it away behind our back: `madvise(2)` with
//! `MADV_DONTNEED`, say, on the addresses of a map. Then the touch faults again, for
//! ever, with all signals masked. So a spurious fault is believed once. If the same
//! page comes again, the page tables are asked, with the page locked; and a page that
//! is missing is filled again, with what the kernel would show: a file's bytes, and
//! zeros for private memory.

use super::map::mmu_error;
use super::{Fault, FaultError, Wait};
use crate::PAGE_SIZE;
use crate::anon::{Anonymous, PageState};
use crate::cache::folio::flag;
use crate::cache::{FolioRef, OnTruncate, PageCache};
use crate::mmu::Access;
use crate::reclaim::Need;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Arc, PROCESSORS};

/// EFAULT: the page was to stay, and nobody has its bytes.
const LOST: FaultError = FaultError::Io(14);
/// Pages that are remembered.
const PLACES: usize = if PROCESSORS < 8 { 1 } else { 64 };

/// The pages whose spurious faults were believed last. Relaxed throughout: one that is
/// lost is believed once more, and one too many is asked for.
pub(crate) struct Believed([AtomicUsize; PLACES]);

impl Default for Believed {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicUsize::new(0)))
    }
}

impl Believed {
    /// True if the page's last spurious fault was believed, and none of another page
    /// at its place since.
    fn was(&self, addr: usize) -> bool {
        let place = &self.0[addr / PAGE_SIZE % self.0.len()];
        if place.load(Ordering::Relaxed) == addr {
            place.store(0, Ordering::Relaxed);
            return true;
        }
        place.store(addr, Ordering::Relaxed);
        false
    }
}

/// A fault at `addr`, a page of a mapped folio of a file.
pub(super) fn file(cache: &Arc<PageCache>, folio: FolioRef<'_>, addr: usize) -> Fault {
    let node = &cache.node;
    node.stats.spurious.add(1);
    if !node.believed.was(addr) {
        return Fault::Mapped;
    }
    if !folio.try_lock() {
        return Fault::Retry(Wait::folio(cache, folio));
    }
    // Nobody maps it or takes it out while it is locked.
    let is_mapped = folio.state() & (flag::MAPPED | flag::DEAD) == flag::MAPPED;
    let fault = match is_mapped && node.mmu.is_missing(addr) {
        true if folio.is(flag::HOLE) => fill_hole(cache, addr),
        true => read_again(cache, addr),
        false => Fault::Mapped,
    };
    folio.unlock();
    fault
}

fn fill_hole(cache: &PageCache, addr: usize) -> Fault {
    let zeroed = (cache.node.mmu).zero(cache.window.reservation(), addr, PAGE_SIZE);
    zeroed.map_or_else(|error| Fault::Error(mmu_error(error)), |()| Fault::Mapped)
}

/// Reads a page into the window, which counts it already. It stays what it was: it
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
            let arrived = arrived.min(PAGE_SIZE);
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

/// True if a fault on a resident page of private memory is one that the page tables
/// are to be asked about. A write to a page that is clean has something to do first.
pub(super) fn is_doubtful(anon: &Anonymous, addr: usize, state: PageState, write: bool) -> bool {
    let spurious = state.is_resident() && !(write && (state.is_clean() || state.is_zero()));
    spurious && anon.node.believed.was(addr)
}

/// A fault at `addr`, a page of private memory that is resident in this state.
pub(super) fn private(anon: &Arc<Anonymous>, addr: usize, state: PageState) -> Fault {
    let node = &anon.node;
    let Some(mut page) = anon.pages.try_lock(anon.page(addr), state) else {
        return Fault::Again;
    };
    // Nobody maps it or takes it out while it is locked.
    if !node.mmu.is_missing(addr) {
        return Fault::Mapped;
    }
    if state.stays() {
        // Somebody relies on it to be there, and to be counted.
        return stays(anon, addr, state);
    }
    // As if it had been given up by advice: absent.
    anon.put_slot(page.slot());
    page.set_slot(None);
    (anon.window).leave_and_zap(addr, 1, &*node.mmu, &node.budget);
    if !state.is_zero() {
        node.anonymous_out.add(1);
        node.budget.uncharge(1);
    }
    page.set(PageState::ABSENT);
    Fault::Again
}

/// A page that is locked in memory, or kept for a system call, and is missing.
fn stays(anon: &Anonymous, addr: usize, state: PageState) -> Fault {
    if anon.origin().is_some() || state.is_zero() {
        return Fault::Error(LOST);
    }
    let filled = (anon.node.mmu).fill(anon.window.reservation(), addr, PAGE_SIZE);
    filled.map_or_else(|error| Fault::Error(mmu_error(error)), |()| Fault::Mapped)
}
