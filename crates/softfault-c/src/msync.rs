//! msync(2).

use crate::access::mapped_pages;
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part};
use core::ffi::{c_int, c_void};

/// Has what was written to a shared file reach its device; msync(2).
///
/// addr is a multiple of the page size; length is rounded up to whole pages, and may be 0. flags is MS_SYNC: it is on
/// the device when this returns; or MS_ASYNC: that is begun; either with MS_INVALIDATE, which is nothing: maps of one
/// engine see each other's writes. Of private maps nothing is to be done.
///
/// Returns 0, or -1 with errno:
///   EBUSY   MS_INVALIDATE, and pages of the range are locked
///   EINVAL  addr is no multiple of the page size, or flags has unknown bits, or both of MS_SYNC and MS_ASYNC
///   EIO     (or ENOSPC and others) something could not be written, now or since the last call on this map
///   ENOMEM  some of the pages are not mapped by softfault: nothing was done
///
/// Any threads may call this at the same time, on the same pages too. It covers what was written before it is called.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_msync(addr: *mut c_void, length: usize, flags: c_int) -> c_int {
    answer(-1, || {
        const KNOWN: c_int = libc::MS_SYNC | libc::MS_ASYNC | libc::MS_INVALIDATE;
        let both = libc::MS_SYNC | libc::MS_ASYNC;
        if flags & !KNOWN != 0 || flags & both == both {
            return Err(Failure::invalid("flags is not one of MS_SYNC and MS_ASYNC"));
        }
        let pages = mapped_pages(addr, length)?;
        let parts = Part::of(&pages).map_err(|NotMapped| Failure::not_mapped())?;
        let is_locked = || parts.iter().any(|part| maps::is_locked(&part.range));
        if flags & libc::MS_INVALIDATE != 0 && is_locked() {
            return Err(Failure::new(
                libc::EBUSY,
                "pages of the range are locked in memory",
            ));
        }
        for part in &parts {
            let offsets = part.offsets();
            match flags & libc::MS_SYNC != 0 {
                true => part.map.flush_range(offsets.start, offsets.len())?,
                false => part.map.flush_async_range(offsets.start, offsets.len())?,
            }
        }
        Ok(0)
    })
}
