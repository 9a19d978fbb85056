//! Memory by the page: from the machine's region, so that its lines are known
//! by their place in it.

use core::ptr::NonNull;

use crate::machine;

/// Maps `bytes` of zeroed memory that costs nothing until touched. `None` when
/// the system has no more.
#[track_caller]
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    match machine::map_pages(bytes) {
        Some(pages) => pages,
        None => softfault_sync_std::pages::map(bytes),
    }
}

/// Memory that may be used once it is [opened](open): here it may be at once. The error
/// is an errno.
#[track_caller]
pub fn reserve(bytes: usize) -> Result<NonNull<u8>, i32> {
    const ENOMEM: i32 = 12;
    map(bytes).ok_or(ENOMEM)
}

/// Lets a part of the reservation be used.
///
/// # Safety
/// The part is of one reservation, in whole pages.
pub unsafe fn open(_addr: NonNull<u8>, _bytes: usize) -> bool {
    true
}

/// Gives memory from [`map`] back.
///
/// # Safety
/// `addr` and `bytes` are those of one `map`, and nothing uses it any more.
#[track_caller]
pub unsafe fn unmap(addr: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    if !unsafe { machine::unmap_pages(addr, bytes) } {
        // SAFETY: not the region's, so it is the std world's.
        unsafe { softfault_sync_std::pages::unmap(addr, bytes) };
    }
}

/// Would give the memory behind whole pages of a [`map`] back: here it stays, as it is.
///
/// # Safety
/// The pages are within one map, and nobody writes to them meanwhile.
pub unsafe fn discard(_addr: NonNull<u8>, _bytes: usize) -> bool {
    false
}
