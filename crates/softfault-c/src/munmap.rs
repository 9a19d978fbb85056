//! munmap(2).

use crate::access::pages;
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps;
use core::ffi::{c_int, c_void};

/// Unmaps pages that softfault_mmap has mapped; munmap(2).
///
/// addr is a multiple of the page size; length is rounded up to whole pages. It may be a part of a map, or
/// several maps that lie side by side. Pins and locks of the pages end. What was written to a shared file is in the file
/// when this returns (not on its device: softfault_msync); the rest of what the map had is given back.
///
/// Where several maps of one file show the same pages, each call takes them out of one.
///
/// Nobody may use the pages afterwards. As long as something else of the same file, or of the same map, is mapped, the
/// addresses stay taken; a touch of them is then a signal or shows the file, and never other memory.
///
/// Returns 0, or -1 with errno:
///   EINVAL  addr is no multiple of the page size, length is 0, or some of the pages are not mapped by softfault:
///           nothing is unmapped then
///
/// Any threads may call this at the same time, while others call functions on the same map too: such a call ends
/// as if it had come before, or fails with ENOMEM. Whoever touches the pages at the same time has a bug, as with
/// munmap(2).
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
            Failure::invalid("the range has addresses that softfault has not mapped")
        })?;
        Ok(0)
    })
}
