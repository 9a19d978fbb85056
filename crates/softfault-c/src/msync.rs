//! msync(2).

use crate::access::mapped_pages;
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part};
use core::ffi::{c_int, c_void};

/// Writes the dirty pages of a shared map to the file's device; msync(2).
///
/// addr is a multiple of the page size; length is rounded up to whole pages, and may be 0. flags is MS_SYNC (the data is
/// on the device when this returns) or MS_ASYNC (starts to write). Both may have MS_INVALIDATE, which has no effect: maps
/// of one engine see each other's writes. On a map that only reads, it is for pages that other maps of the file have written to; bytes
/// that calls have written to a file that no map writes to are not brought to the device (msync(2) does): use fsync(2). For private maps
/// the call does nothing.
///
/// Returns 0, or -1 with errno:
///   EBUSY   MS_INVALIDATE, and pages of the range are locked
///   EINVAL  addr is no multiple of the page size, or flags has unknown bits, or both of MS_SYNC and MS_ASYNC
///   EIO     (or ENOSPC and others) a write failed, now or since the last call on this map
///   ENOMEM  some of the pages are not mapped by softfault: nothing was done
///
/// Several threads may call this at the same time, also on the same pages. It covers all writes made before the call.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_msync(addr: *mut c_void, length: usize, flags: c_int) -> c_int {
    answer(-1, || {
        const KNOWN: c_int = libc::MS_SYNC | libc::MS_ASYNC | libc::MS_INVALIDATE;
        let (unknown, both) = (flags & !KNOWN, libc::MS_SYNC | libc::MS_ASYNC);
        if unknown != 0 {
            return Err(Failure::unknown_bits(unknown));
        }
        if flags & both == both {
            return Err(Failure::invalid("flags has both MS_SYNC and MS_ASYNC"));
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
