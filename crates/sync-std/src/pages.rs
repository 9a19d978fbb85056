//! Memory by the page, zeroed when first touched, from the system and not
//! from the heap: it may be asked for inside the fault handler.

use core::ptr::NonNull;

/// Maps `bytes` of zeroed memory that costs nothing until touched. `None` when
/// the system has no more. A child process gets a copy, as of any other memory:
/// what it must not have, its owner keeps from it.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let addr = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if addr == libc::MAP_FAILED {
        None
    } else {
        NonNull::new(addr.cast())
    }
}

/// Gives memory from [`map`] back.
///
/// # Safety
/// `addr` and `bytes` are those of one `map`, and nothing uses it any more.
pub unsafe fn unmap(addr: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller owns the whole mapping.
    unsafe { libc::munmap(addr.as_ptr().cast(), bytes) };
}
