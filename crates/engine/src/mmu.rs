//! Page tables, as a trait: the kernel's through userfaultfd, or our own in
//! memory.
//!
//! An [`Mmu`] maps whole runs of pages and zaps whole batches. It holds no
//! lock that a caller could meet again: exclusion between a fault and reclaim
//! of the same page is the folio lock's business, and of the same page table
//! the range word's (`cache::window`).

use core::ops::Range;

/// Why pages could not be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmuError {
    /// The machine has no more memory, address space or file descriptors.
    NoMemory,
    /// The window is gone: it was unmapped, or never was one.
    Gone,
    /// Page tables of this kind are not to be had here.
    Closed,
    /// The system answered something that should not happen: its errno.
    System(i32),
}

/// Page tables.
pub trait Mmu: Send + Sync {
    /// Reserves `bytes` of address space whose pages are all missing, aligned
    /// to 2 MiB. A touch there ends in [`fault::handle`](crate::mm).
    fn reserve(&self, bytes: usize) -> Result<usize, MmuError>;

    /// Gives a whole reservation back.
    fn release(&self, window: Range<usize>);

    /// Maps `bytes` at `addr` as a copy of `source`. Pages that are already
    /// there are left as they are. Returns when the whole run is present.
    ///
    /// # Safety
    /// `source` is readable for `bytes`, and `addr..addr + bytes` lies in one
    /// reservation.
    unsafe fn copy(&self, addr: usize, source: *const u8, bytes: usize) -> Result<(), MmuError>;

    /// Maps `bytes` at `addr` as zeros that cost no memory.
    fn zero(&self, addr: usize, bytes: usize) -> Result<(), MmuError>;

    /// Unmaps all the ranges, in one go where the system can.
    fn zap(&self, ranges: &[Range<usize>]);
}
