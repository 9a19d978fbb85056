//! Page tables that stand over the soft ones, which they have in a field `mmu`, and do some things differently.

use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::{Mmu, SoftMmu};
use softfault_oracle::Rig;
use std::ops::Range;
use std::slice::from_ref;

/// The methods of `Mmu` that all of them hand on, but those that take memory, `protect` and `zap`.
macro_rules! handed_on_but_memory {
    () => {
        fn reserve(&self, bytes: usize, protection: Protection) -> Result<Reservation, MmuError> {
            self.mmu.reserve(bytes, protection)
        }

        fn release(&self, window: Reservation) {
            self.mmu.release(window);
        }

        fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
            self.mmu.zero(window, addr, bytes)
        }

        fn zero_page(&self, window: &Reservation, addr: usize) -> Result<Zeroed, MmuError> {
            self.mmu.zero_page(window, addr)
        }

        fn make_writable(&self, window: &Reservation, addr: usize) -> Result<(), MmuError> {
            self.mmu.make_writable(window, addr)
        }

        fn flush_tlbs(&self) {
            self.mmu.flush_tlbs();
        }

        unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool {
            // SAFETY: the caller's promise.
            unsafe { self.mmu.read(addr, target, bytes) }
        }
    };
}
pub(crate) use handed_on_but_memory;

/// The same, and those.
macro_rules! handed_on {
    () => {
        $crate::over_soft::handed_on_but_memory!();

        unsafe fn copy(
            &self,
            to: Place<'_>,
            of: *const [u8],
            access: Access,
        ) -> Result<(), MmuError> {
            // SAFETY: the caller's promise.
            unsafe { self.mmu.copy(to, of, access) }
        }

        fn protect(&self, ranges: &[Range<usize>]) {
            self.mmu.protect(ranges);
        }

        fn zap(&self, ranges: &[Range<usize>]) {
            self.mmu.zap(ranges);
        }

        fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
            self.mmu.fill(window, addr, bytes)
        }
    };
}
pub(crate) use handed_on;

/// Of those that the trait has already: where a page's bytes are, and the way of pages to other windows.
macro_rules! pages_handed_on {
    () => {
        fn bytes(&self, window: &Reservation, addr: usize) -> *const u8 {
            self.mmu.bytes(window, addr)
        }

        fn move_pages(
            &self,
            from: Place<'_>,
            to: Place<'_>,
            bytes: usize,
        ) -> Result<(), PartialMove> {
            self.mmu.move_pages(from, to, bytes)
        }
    };
}
pub(crate) use pages_handed_on;

/// True if there is a page.
pub fn is_there(mmu: &SoftMmu, addr: usize) -> bool {
    let mut byte = 0;
    // SAFETY: fills the byte.
    unsafe { mmu.read(addr, &mut byte, 1) }
}

/// As a program does that knows nothing of us.
pub fn throw_away(rig: &Rig, start: usize, pages: Range<usize>) {
    let range = start + pages.start * PAGE_SIZE..start + pages.end * PAGE_SIZE;
    rig.mmu.zap(from_ref(&range));
    rig.mmu.flush_tlbs();
}
