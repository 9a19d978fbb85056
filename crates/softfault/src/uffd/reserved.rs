//! Address space for windows: reserved, and given back.

use super::mmu::system;
use core::ops::Range;
use libc::c_void;
use softfault_engine::mmu::MmuError;

/// Reserves address space that cannot be accessed; the address of its first byte.
pub(super) fn inaccessible(bytes: usize) -> Result<usize, MmuError> {
    match sync::pages::reserve(bytes) {
        Ok(addr) => Ok(addr.as_ptr() as usize),
        // `mlockall(MCL_FUTURE)`, and its limit is used up.
        Err(libc::EAGAIN) => Err(system(libc::EAGAIN)),
        Err(_) => Err(MmuError::NoMemory),
    }
}

/// Takes a mapping away.
pub(super) fn unmap(range: Range<usize>) {
    if !range.is_empty() {
        // SAFETY: a part of a mapping that was just made and is not used.
        unsafe { sync::kernel_calls::munmap(range.start as *mut c_void, range.end - range.start) };
    }
}
