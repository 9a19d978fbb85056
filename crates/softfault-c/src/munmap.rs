//! munmap(2).

use crate::access::pages;
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps;
use core::ffi::{c_int, c_void};

/// Unmaps pages that softfault_mmap has mapped; munmap(2).
///
/// addr is a multiple of the page size; length is rounded up to whole pages. The range may be a part of a map, or
/// several adjacent maps. Pins and locks of the pages end. Writes to a shared map of a file are in the file
/// when this returns, also if other maps still show them (for the device, and for errors, see softfault_msync). The memory of
/// pages that no other map shows is freed.
///
/// If several maps of one file show the same pages, each call removes them from one map; from one that can be written to
/// only if no other has them.
///
/// The pages must not be used afterwards. While other pages of the same file, or of the same map, are mapped, the
/// addresses stay reserved: a touch of them raises a signal or shows the file, and never other memory.
///
/// Returns 0, or -1 with errno:
///   EINVAL  addr is no multiple of the page size, length is 0, some of the pages are not mapped by softfault, or the
///           range begins or ends within a huge page: nothing is unmapped then
///
/// Several threads may call this at the same time, also while other threads call functions on the same map: such a call
/// ends as if it had come before, or fails with ENOMEM. The pages are freed when the last such call ends. A touch of
/// the pages at the same time is a bug of the program, as with munmap(2).
///
/// # Safety
/// Nobody uses the pages any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_munmap(addr: *mut c_void, length: usize) -> c_int {
    answer(-1, || {
        if length == 0 {
            return Err(Failure::invalid("the length is 0"));
        }
        let pages = pages(addr, length)?;
        maps::unmap(&pages).map_err(|maps::NotMapped| {
            Failure::invalid(
                "the range has addresses that softfault has not mapped, or a part of a huge page",
            )
        })?;
        Ok(0)
    })
}
