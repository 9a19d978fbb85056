//! Pages that stay, and may be handed to system calls: reclaim never write-protects them.
//!
//! Reclaim protects its victims in ranges that go over a few pages which are none
//! ([`reclaim::anonymous`](crate::reclaim)). A write of the processor's to such a page
//! is a fault more; one of the kernel's, on behalf of a system call, fails. So it
//! leaves such pages out where some may stay. The thread that marks the first page of a
//! window as staying waits for batches that may have begun before.

use super::Anonymous;
use crate::PAGE_SIZE;
use crate::budget::SLICE_NS;
use crate::cache::Node;
use crate::mmu::MmuError;
use sync::atomic::{AtomicU32, Ordering};

/// Reclaim goes round pages of this window.
const KEEP_REQUESTED: u32 = 1;
/// And all batches that might have begun before are done.
const KEEP_VISIBLE: u32 = 2;

/// Whether pages of a window may stay.
#[derive(Default)]
pub(super) struct KeepState(AtomicU32);

impl KeepState {
    fn is_requested(&self) -> bool {
        // Relaxed: the thread that sets it takes all batches afterwards, and a holder of a
        // batch that was taken after that sees it.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// From now on pages that are no victims are not protected.
    fn begin(&self, node: &Node) {
        // Acquire pairs with the Release below: no batch goes over pages any more.
        if self.0.load(Ordering::Acquire) == KEEP_VISIBLE {
            return;
        }
        self.0.fetch_max(KEEP_REQUESTED, Ordering::Relaxed);
        drop(node.stop_eviction());
        // Release pairs with the Acquire above.
        self.0.fetch_max(KEEP_VISIBLE, Ordering::Release);
    }

    /// A window takes over the mark of the one that its pages come from.
    pub(super) fn take_over(&self, from: &Self) {
        (self.0).fetch_max(from.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Anonymous {
    /// True if only pages that are victims themselves may be protected.
    pub(crate) fn keeps(&self) -> bool {
        self.keep_state.is_requested()
    }

    /// True if a page stays.
    pub(crate) fn stays(&self, page: usize) -> bool {
        self.pages.state(page).stays()
    }

    /// Lets a page stay; true if that is new. The caller has counted it.
    pub(crate) fn keep_page(&self, page: usize) -> bool {
        self.keep_state.begin(&self.node);
        self.set_stays(page, true)
    }

    /// Lets a page go; true if that is new.
    pub(crate) fn release_page(&self, page: usize) -> bool {
        self.set_stays(page, false)
    }

    fn set_stays(&self, page: usize, stays: bool) -> bool {
        loop {
            let state = self.pages.state(page);
            if state.stays() == stays {
                return false;
            }
            // Not locked for this: a process that forked meanwhile would have a child in
            // which it is locked for ever.
            if self.pages.change(page, state, state.with_stays(stays)) {
                return true;
            }
            self.pages.wait_unlocked(page, SLICE_NS);
        }
    }

    /// Makes a written page, which may have been protected by the way, writable.
    pub(crate) fn make_writable(&self, page: usize) -> Result<(), MmuError> {
        // As in reclaim, a batch is held while pages are locked: a fork waits for it.
        let _batch = self.node.private.batches.take();
        self.make_writable_alone(page)
    }

    /// The same, where nothing is evicted.
    pub(super) fn make_writable_alone(&self, page: usize) -> Result<(), MmuError> {
        let lock = self.pages.lock(page);
        if !lock.state().is_resident() || lock.state().is_clean() {
            return Ok(());
        }
        let addr = self.window.reservation().addr + page * PAGE_SIZE;
        (self.node.mmu).make_writable(self.window.reservation(), addr)
    }
}
