//! A fault on a page of private memory that is taken for resident: somebody's was faster,
//! or the program threw the page away ([`spurious`](crate::cache::spurious)).

use super::{Fault, mmu_error};
use crate::PAGE_SIZE;
use crate::anon::pages::PageLock;
use crate::anon::{Anonymous, PageState};
use crate::cache::spurious::UNREADABLE;
use crate::page::FaultError;
use sync::Arc;

/// EFAULT: the page was to stay, and nobody has its bytes.
const LOST: FaultError = FaultError::Io(14);

/// True if a fault on a resident page of private memory is one that the page tables
/// are to be asked about. A write to a page that is clean has something to do first.
pub(super) fn must_check_page_tables(
    anon: &Anonymous,
    addr: usize,
    state: PageState,
    write: bool,
) -> bool {
    let spurious = state.is_resident() && !(write && (state.is_clean() || state.is_zero()));
    spurious && anon.node.spurious_faults.is_second(addr)
}

/// A fault at `addr`, a page of private memory that is resident in this state.
// Seldom, and its variables would be on the handler's stack in all faults.
#[inline(never)]
pub(super) fn fault(anon: &Arc<Anonymous>, addr: usize, state: PageState) -> Fault {
    let node = &anon.node;
    let Some(mut page) = anon.pages.try_lock(anon.page(addr), state) else {
        return Fault::Again;
    };
    // Nobody maps it or takes it out while it is locked.
    if !node.mmu.is_missing(addr) {
        return match node.mmu.is_lost(addr) {
            true => Fault::Error(UNREADABLE),
            false => Fault::Mapped,
        };
    }
    if state.stays() {
        // Somebody relies on it to be there, and to be counted.
        return stays(anon, addr, page);
    }
    // As if it had been given up by advice: absent.
    anon.put_slot(page.slot());
    page.set_slot(None);
    (anon.window).leave_and_zap(addr, 1, &*node.mmu, &node.budget);
    if !state.is_zero() {
        node.private.uncharged(1);
        node.budget.uncharge(1);
    }
    page.set(PageState::ABSENT);
    Fault::Again
}

/// A page that is locked in memory, or kept for a system call, and is missing.
fn stays(anon: &Anonymous, addr: usize, mut page: PageLock<'_>) -> Fault {
    let state = page.state();
    if anon.private_file().is_some() || state.is_zero() {
        return Fault::Error(LOST);
    }
    if let Err(error) = (anon.node.mmu).fill(anon.window.reservation(), addr, PAGE_SIZE) {
        return Fault::Error(mmu_error(error));
    }
    // It is not protected: no fault tells of the next write, and what a slot has is not what the page has.
    anon.put_slot(page.slot());
    page.set_slot(None);
    page.set(state.to_dirty());
    Fault::Mapped
}
