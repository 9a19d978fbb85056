//! mlock(2) and munlock(2).

use crate::access::pages_around;
use crate::boundary::answer;
use crate::maps;
use core::ffi::{c_int, c_void};

/// Brings pages into memory, where they stay until softfault_munlock or softfault_munmap; mlock(2).
///
/// It locks every page that overlaps the range. Locks do not nest. Up to half of an engine's budget can be locked or
/// pinned; the process's RLIMIT_MEMLOCK matters only for maps that the kernel serves. System calls may use locked
/// pages. A child of fork inherits no lock.
///
/// Returns 0, or -1 with errno; after an error no page is newly locked:
///   EFAULT  some of the pages are past the end of the file
///   EINVAL  the range does not fit in the address space
///   ENOMEM  some of the pages are not mapped by softfault, or they are more than may be locked; or, where the kernel serves
///           the map, past the end of the file
///   or the error of a failed read.
///
/// Several threads may call this at the same time, also on the same pages.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_mlock(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        maps::lock(&pages_around(addr, length)?)?;
        Ok(0)
    })
}

/// Unlocks pages that softfault_mlock has locked: they may be evicted again; munlock(2).
///
/// It unlocks every page that overlaps the range; the pages need not be locked. Pins stay.
///
/// Returns 0, or -1 with errno:
///   EINVAL  the range does not fit in the address space
///   ENOMEM  some of the pages are not mapped by softfault; or the range is only a part of the range of one softfault_mlock
///           call, and almost all memory that may be locked or pinned is so: then the part stays locked
///
/// Several threads may call this at the same time, also on the same pages.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_munlock(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        maps::unlock(&pages_around(addr, length)?)?;
        Ok(0)
    })
}
