//! Page tables that fail to move pages when they are told to.

use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Access, Mmu, MmuError, Place, Reservation, SoftMmu, Zeroed};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Never.
pub const NEVER: usize = usize::MAX;

pub struct Failing {
    pub mmu: Arc<SoftMmu>,
    /// Pages that can be moved until one cannot; then all can again.
    pub left: AtomicUsize,
}

impl Mmu for Failing {
    fn reserve(&self, bytes: usize, protection: Protection) -> Result<Reservation, MmuError> {
        self.mmu.reserve(bytes, protection)
    }

    fn release(&self, window: Reservation) {
        self.mmu.release(window);
    }

    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], access: Access) -> Result<(), MmuError> {
        // SAFETY: the caller's promise.
        unsafe { self.mmu.copy(to, of, access) }
    }

    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        self.mmu.zero(window, addr, bytes)
    }

    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        self.mmu.fill(window, addr, bytes)
    }

    fn zero_page(&self, window: &Reservation, addr: usize) -> Result<Zeroed, MmuError> {
        self.mmu.zero_page(window, addr)
    }

    fn protect(&self, ranges: &[Range<usize>]) {
        self.mmu.protect(ranges);
    }

    fn bytes(&self, window: &Reservation, addr: usize) -> *const u8 {
        self.mmu.bytes(window, addr)
    }

    fn move_pages(&self, from: Place<'_>, to: Place<'_>, bytes: usize) -> Result<(), MmuError> {
        let pages = bytes / softfault_engine::PAGE_SIZE;
        let left = self.left.load(Ordering::Relaxed);
        if left == NEVER || pages <= left {
            let still = if left == NEVER { NEVER } else { left - pages };
            self.left.store(still, Ordering::Relaxed);
            return self.mmu.move_pages(from, to, bytes);
        }
        self.left.store(NEVER, Ordering::Relaxed);
        // The first have moved.
        self.mmu
            .move_pages(from, to, left * softfault_engine::PAGE_SIZE)?;
        Err(MmuError::NoMemory)
    }

    fn make_writable(&self, window: &Reservation, addr: usize) -> Result<(), MmuError> {
        self.mmu.make_writable(window, addr)
    }

    fn flush_tlbs(&self) {
        self.mmu.flush_tlbs();
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        self.mmu.zap(ranges);
    }

    unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.mmu.read(addr, target, bytes) }
    }
}
