//! mlock(2) and munlock(2).

use crate::access::pages_around;
use crate::boundary::answer;
use crate::maps;
use core::ffi::{c_int, c_void};

/// Brings pages into memory, where they stay until softfault_munlock or softfault_munmap; mlock(2).
///
/// The pages are those that the range touches. Locks do not nest. Up to half of an engine's budget can be locked or
/// pinned; the process's RLIMIT_MEMLOCK matters only to maps that the kernel serves. System calls may use locked
/// pages. A child of fork inherits no lock.
///
/// Returns 0, or -1 with errno; no page is locked then that was not before:
///   EFAULT  some of the pages are behind the end of the file
///   EINVAL  the range is longer than addresses go
///   ENOMEM  some of the pages are not mapped by softfault, or they are more than may be locked
///   and the error of a read that has failed.
///
/// Any threads may call this at the same time, on the same pages too.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_mlock(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        maps::lock(&pages_around(addr, length)?)?;
        Ok(0)
    })
}

/// Lets pages be evicted again that softfault_mlock has locked; munlock(2).
///
/// The pages are those that the range touches; they need not be locked. Pins stay.
///
/// Returns 0, or -1 with errno:
///   EINVAL  the range is longer than addresses go
///   ENOMEM  some of the pages are not mapped by softfault; or, where a part of what was locked by one call is to be
///           unlocked while almost all that may be is locked or pinned, the part stays locked
///
/// Any threads may call this at the same time, on the same pages too.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_munlock(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        maps::unlock(&pages_around(addr, length)?)?;
        Ok(0)
    })
}
