//! Page tables that fail to move pages when they are told to.

use crate::over_soft::{handed_on, is_there};
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{
    Access, Mmu, MmuError, PartialMove, Place, Reservation, SoftMmu, Zeroed,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Never.
pub const NEVER: usize = usize::MAX;

pub struct Failing {
    pub mmu: Arc<SoftMmu>,
    /// Pages that can be moved until one cannot; then all can again.
    pub left: AtomicUsize,
    /// Single pages that were to be moved and were not there. The system may refuse that.
    pub in_vain: AtomicUsize,
}

impl Failing {
    /// Moves pages, which are protected then, as the system's are.
    fn moved(&self, from: Place<'_>, to: Place<'_>, bytes: usize) -> Result<(), PartialMove> {
        self.mmu.move_pages(from, to, bytes)?;
        self.mmu
            .protect(core::slice::from_ref(&(to.1..to.1 + bytes)));
        Ok(())
    }
}

impl Mmu for Failing {
    handed_on!();
    fn bytes(&self, window: &Reservation, addr: usize) -> *const u8 {
        self.mmu.bytes(window, addr)
    }

    fn move_pages(&self, from: Place<'_>, to: Place<'_>, bytes: usize) -> Result<(), PartialMove> {
        let pages = bytes / softfault_engine::PAGE_SIZE;
        if pages == 1 && !is_there(&self.mmu, from.1) {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
        }
        let left = self.left.load(Ordering::Relaxed);
        if left == NEVER || pages <= left {
            let still = if left == NEVER { NEVER } else { left - pages };
            self.left.store(still, Ordering::Relaxed);
            return self.moved(from, to, bytes);
        }
        self.left.store(NEVER, Ordering::Relaxed);
        // The first have moved.
        let moved = left * softfault_engine::PAGE_SIZE;
        self.moved(from, to, moved)?;
        let error = MmuError::NoMemory;
        Err(PartialMove { error, moved })
    }
}
