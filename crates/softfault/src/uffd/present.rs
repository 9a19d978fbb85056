//! Whether a page is there, by asking the kernel; and copying it out, if it is.

use crate::errno::errno;
use libc::{c_int, c_void};
use softfault_engine::PAGE_SIZE;

/// No way to change a mask: the kernel reads the set, and then refuses.
const NO_WAY: c_int = -1;
/// Bytes of a mask, as the kernel has it.
const MASK_BYTES: usize = 8;

/// True if the page of a window is certainly missing. What is there and may not be
/// read, or is in the system's swap, is not missing.
///
/// The kernel is asked to read from the page: a fault of the kernel's on a missing page
/// of a window is served by nobody, and changes nothing. No descriptor is involved, no
/// filter of system calls refuses it, and where the page is there no lock is taken.
pub fn is_missing(addr: usize) -> bool {
    let page = (addr & !(PAGE_SIZE - 1)) as *mut c_void;
    // SAFETY: reads a page of a window of ours, if it can, and changes nothing.
    let answer = unsafe {
        let nothing = core::ptr::null_mut::<c_void>();
        libc::syscall(libc::SYS_rt_sigprocmask, NO_WAY, page, nothing, MASK_BYTES)
    };
    if answer == 0 || errno() != libc::EFAULT {
        return false;
    }
    // Or the program has taken the leave to read away.
    let mut there = 0_u8;
    // SAFETY: fills the byte.
    let known = unsafe { sync::kernel_calls::mincore(page, PAGE_SIZE, &mut there) == 0 };
    known && there & 1 == 0
}

/// True if [`copy_out`] can be called: a filter of system calls may refuse it.
pub fn can_copy_out() -> bool {
    let (from, mut to) = (1_u8, 0_u8);
    // SAFETY: a byte each.
    unsafe { copy(&raw const from, &raw mut to, 1) == Ok(1) && to == 1 }
}

/// Copies a page of a window out: false if it is missing, an errno if it is there and may not be read. The kernel copies: the
/// program may throw the page away at this very moment.
///
/// # Safety
/// `to` is writable for a page.
pub unsafe fn copy_out(addr: usize, to: *mut u8) -> Result<bool, c_int> {
    // SAFETY: the caller's promise.
    match unsafe { copy(addr as *const u8, to, PAGE_SIZE) } {
        Ok(PAGE_SIZE) => Ok(true),
        _ if is_missing(addr) => Ok(false),
        Ok(_) => Err(libc::EFAULT),
        Err(errno) => Err(errno),
    }
}

/// Copies bytes that may not be there, as far as it goes.
///
/// # Safety
/// `to` is writable for `bytes`.
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) -> Result<usize, c_int> {
    let part = |base: *mut c_void| libc::iovec {
        iov_base: base,
        iov_len: bytes,
    };
    let (into, from) = (part(to.cast()), part(from.cast_mut().cast()));
    // SAFETY: writes to the caller's bytes alone; what cannot be read is an error.
    let done = unsafe { libc::process_vm_readv(libc::getpid(), &into, 1, &from, 1, 0) };
    usize::try_from(done).map_err(|_| errno())
}
