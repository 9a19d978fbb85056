//! System calls, made so that no hook sees them.

use libc::{MAP_FAILED, c_int, c_void, off_t, size_t};

/// `mmap(2)`; errno is set.
///
/// # Safety
/// As of the C library's.
pub unsafe fn mmap(
    addr: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    match unsafe { libc::syscall(libc::SYS_mmap, addr, bytes, protection, flags, fd, offset) } {
        -1 => MAP_FAILED,
        addr => addr as *mut c_void,
    }
}

/// `mremap(2)`; errno is set.
///
/// # Safety
/// As of the C library's.
pub unsafe fn mremap(
    addr: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    match unsafe { libc::syscall(libc::SYS_mremap, addr, old, new, flags, to) } {
        -1 => MAP_FAILED,
        addr => addr as *mut c_void,
    }
}

/// Any call that takes addresses; errno is set.
///
/// # Safety
/// The call takes these arguments.
pub unsafe fn any(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(number, a, b, c, d) as c_int }
}

/// The calling thread's errno.
pub fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub fn set_errno(errno: c_int) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = errno };
}
