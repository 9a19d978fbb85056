//! The calls that change mappings, made straight into the kernel.
//!
//! A library that is loaded before the C library (`LD_PRELOAD`) may have taken these names over, ours among them: the
//! program's calls on its mappings are looked at there. Softfault's calls on its own must not be: they would be
//! answered as the program's, by code that holds the locks which the caller holds. So the library calls these, and
//! never the C library's functions of the same names.

use libc::{MAP_FAILED, c_int, c_long, c_void, off_t, size_t};

/// `mmap(2)`.
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
    let mapped =
        unsafe { crate::system_call!(MMAP, addr, bytes, protection, flags, fd, in_units(offset)) };
    pointer(mapped)
}

/// `munmap(2)`.
///
/// # Safety
/// As of the C library's.
pub unsafe fn munmap(addr: *mut c_void, bytes: size_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::system_call!(libc::SYS_munmap, addr, bytes) as c_int }
}

/// `mremap(2)` to an address: it is looked at with `MREMAP_FIXED` only.
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
    pointer(unsafe { crate::system_call!(libc::SYS_mremap, addr, old, new, flags, to) })
}

/// `mprotect(2)`.
///
/// # Safety
/// As of the C library's.
pub unsafe fn mprotect(addr: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::system_call!(libc::SYS_mprotect, addr, bytes, protection) as c_int }
}

/// `madvise(2)`.
///
/// # Safety
/// As of the C library's.
pub unsafe fn madvise(addr: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::system_call!(libc::SYS_madvise, addr, bytes, advice) as c_int }
}

/// `mincore(2)`.
///
/// # Safety
/// As of the C library's.
pub unsafe fn mincore(addr: *mut c_void, bytes: size_t, there: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::system_call!(libc::SYS_mincore, addr, bytes, there) as c_int }
}

/// `mlock(2)`.
///
/// # Safety
/// As of the C library's.
pub unsafe fn mlock(addr: *const c_void, bytes: size_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::system_call!(libc::SYS_mlock, addr, bytes) as c_int }
}

/// `munlock(2)`.
///
/// # Safety
/// As of the C library's.
pub unsafe fn munlock(addr: *const c_void, bytes: size_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::system_call!(libc::SYS_munlock, addr, bytes) as c_int }
}

/// `msync(2)`.
///
/// # Safety
/// As of the C library's.
pub unsafe fn msync(addr: *mut c_void, bytes: size_t, how: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::system_call!(libc::SYS_msync, addr, bytes, how) as c_int }
}

#[cfg(target_pointer_width = "64")]
const MMAP: c_long = libc::SYS_mmap;
#[cfg(not(target_pointer_width = "64"))]
const MMAP: c_long = libc::SYS_mmap2;

/// An offset as the call takes it: in bytes, or in units of 4096 where a word is too short for them.
fn in_units(offset: off_t) -> off_t {
    match cfg!(target_pointer_width = "64") {
        true => offset,
        false => offset / 4096,
    }
}

fn pointer(answer: c_long) -> *mut c_void {
    match answer {
        -1 => MAP_FAILED,
        addr => addr as usize as *mut c_void,
    }
}
