//! A fault on anonymous memory: a page of zeros, or one of its own where a fork
//! shares it.

use super::map::mmu_error;
use super::{Fault, FaultFlags, Wait};
use crate::PAGE_SIZE;
use crate::anon::Anonymous;
use crate::anon::pages::{Found, PageLock};
use crate::cache::window::Enter;
use sync::Arc;

/// Serves a fault at `addr` of the window.
pub(super) fn fault(anon: &Arc<Anonymous>, addr: usize, flags: FaultFlags) -> Fault {
    let node = &anon.node;
    let addr = addr & !(PAGE_SIZE - 1);
    match anon.pages.find(anon.page(addr), &node.budget) {
        Found::Absent(page) => fill(anon, addr, page),
        Found::Resident if flags.write => {
            // Shared since a fork; or else somebody's fault was faster, and
            // there is nothing to do.
            match node.mmu.make_writable(anon.window.reservation(), addr) {
                Ok(()) => Fault::Mapped,
                Err(error) => Fault::Error(mmu_error(error)),
            }
        }
        Found::Resident => {
            node.stats.spurious.add(1);
            Fault::Mapped
        }
        Found::Locked => Fault::Retry(Wait::anonymous_page(anon, addr)),
        Found::NoMemory => Fault::Retry(Wait::anonymous_memory(anon)),
    }
}

/// Fills a page that is absent and locked.
fn fill(anon: &Arc<Anonymous>, addr: usize, page: PageLock<'_>) -> Fault {
    let node = &anon.node;
    // Whatever is refused, the page is unlocked as it was, absent.
    if !node.budget.try_charge(1, 0) {
        return Fault::Retry(Wait::anonymous_memory(anon));
    }
    match anon.window.enter(addr, 1, &node.budget, 0) {
        Enter::Entered => {}
        refused => {
            node.budget.uncharge(1);
            return Fault::Retry(match refused {
                Enter::Zapping => Wait::anonymous_table(anon, addr),
                _ => Wait::anonymous_memory(anon),
            });
        }
    }
    let window = anon.window.reservation();
    match node.mmu.fill(window, addr, PAGE_SIZE) {
        Ok(()) => {
            page.filled();
            node.stats.anonymous_faults.add(1);
            Fault::Mapped
        }
        Err(error) => {
            (anon.window).leave_and_zap(addr, 1, &*node.mmu, &node.budget);
            node.budget.uncharge(1);
            Fault::Error(mmu_error(error))
        }
    }
}
