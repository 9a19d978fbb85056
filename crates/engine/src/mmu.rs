//! Page tables, as a trait: the kernel's through userfaultfd, or our own in
//! memory.
//!
//! An [`Mmu`] maps whole runs of pages and zaps whole batches. It holds no
//! lock that a caller could meet again: exclusion between a fault and reclaim
//! of the same page is the folio lock's business, and of the same page table
//! the range word's (`cache::window`).

use crate::mm::Protection;
use core::ops::Range;

pub mod soft;
pub use soft::{Core, SoftMmu};

/// Bytes that one page table covers: Linux frees a table only when this whole
/// range is zapped.
pub const TABLE_SPAN: usize = 2 << 20;

/// The errno of page tables that have no such operation.
const ENOSYS: i32 = 38;

/// Why pages could not be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmuError {
    /// The machine has no more memory, address space or file descriptors.
    NoMemory,
    /// The window is gone: it was unmapped, or never was one.
    Gone,
    /// Page tables of this kind are not to be had here, and why: an errno.
    Closed(i32),
    /// The system answered something that should not happen: its errno.
    System(i32),
}

/// Address space whose pages are all missing until mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// First address, a multiple of [`TABLE_SPAN`].
    pub addr: usize,
    /// Bytes, a multiple of the page size.
    pub bytes: usize,
    /// The Mmu's own note of where it belongs.
    pub token: u32,
}

impl Reservation {
    /// The addresses.
    pub fn range(&self) -> Range<usize> {
        self.addr..self.addr + self.bytes
    }
}

/// Page tables.
pub trait Mmu: Send + Sync {
    /// Reserves `bytes` of address space whose pages are all missing, and may
    /// be used as `protection` says once they are there. A touch there ends in
    /// [`fault::handle`](crate::fault::handle).
    fn reserve(&self, bytes: usize, protection: Protection) -> Result<Reservation, MmuError>;

    /// Gives a whole reservation back.
    fn release(&self, window: Reservation);

    /// Maps `bytes` at `addr` as a copy of `source`. Pages that are already
    /// there are left as they are. On success the whole run is present.
    ///
    /// # Safety
    /// `source` is readable for `bytes`, and `addr..addr + bytes` lies in
    /// `window`.
    unsafe fn copy(
        &self,
        window: &Reservation,
        addr: usize,
        source: *const u8,
        bytes: usize,
    ) -> Result<(), MmuError>;

    /// Maps `bytes` at `addr` as zeros that cost no memory.
    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError>;

    /// Maps `bytes` at `addr` as zeroed memory of their own, writable. Pages
    /// that are already there are left as they are.
    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError>;

    /// Makes the empty window `child`, as long as `parent`, show all that
    /// `parent` shows; a page is copied when either side writes to it. Nobody
    /// maps or zaps pages of either meanwhile. After an error `child` shows a
    /// part. The budget is the caller's business: it has paid for all copies.
    fn fork(&self, _parent: &Reservation, _child: &Reservation) -> Result<(), MmuError> {
        Err(MmuError::Closed(ENOSYS))
    }

    /// The page at `addr`, present but not to be written to (shared since a
    /// fork, or zeros that cost no memory), becomes the window's own and
    /// writable. A page that is missing, or writable already, is left alone.
    fn unshare(&self, _window: &Reservation, _addr: usize) -> Result<(), MmuError> {
        Ok(())
    }

    /// Returns when nobody uses any more what was buffered of what a space
    /// shows: a VMA was taken away, moved, or allows less. Where accesses are
    /// the processor's own, there is nothing to do: it knows windows only.
    fn flush_tlbs(&self) {}

    /// Unmaps all the ranges, in one go where the system can. They lie in
    /// reservations that are still held.
    fn zap(&self, ranges: &[Range<usize>]);

    /// Copies mapped bytes out: `false` if a page of `addr..` is missing.
    ///
    /// # Safety
    /// `target` is writable for `bytes`.
    unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool;
}
