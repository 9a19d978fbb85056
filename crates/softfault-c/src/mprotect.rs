//! mprotect(2).

use crate::access::{Prot, mapped_pages};
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part};
use core::ffi::{c_int, c_void};

/// Says whether pages may be written to; mprotect(2).
///
/// addr is a multiple of the page size; length is rounded up to whole pages. It may be a part of a map, or several maps
/// that lie side by side: private ones, or shared ones that the kernel serves. A call that changes nothing
/// succeeds for any range.
///
/// prot is PROT_READ or PROT_READ|PROT_WRITE. A write to a page that may only be read raises SIGSEGV. Pins and locks stay.
///
/// Returns 0, or -1 with errno:
///   EACCES      a map is of a shared file, and was made to be read only
///   EINVAL      addr is no multiple of the page size, or prot has unknown bits
///   ENOMEM      some of the pages are not mapped by softfault; or there is no memory for what is to be known of more parts
///   EOPNOTSUPP  PROT_NONE, PROT_EXEC, or a shared file that the engine writes to
/// Nothing is changed then, but that of several maps the first may have been, where there is no memory.
///
/// Any threads may call this at the same time, on the same map too, while others call functions on it and touch it.
///
/// # Safety
/// Nobody writes to pages that may not be written to any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_mprotect(
    addr: *mut c_void,
    length: usize,
    prot: c_int,
) -> c_int {
    answer(-1, || {
        let pages = mapped_pages(addr, length)?;
        let writable = Prot::of(prot)? == Prot::Write;
        let parts = Part::of(&pages).map_err(|NotMapped| Failure::not_mapped())?;
        let is_wrong = |part: &&Part| part.access.writable != writable;
        for wrong in parts.iter().filter(is_wrong) {
            if writable && wrong.access.shared && !wrong.made.writable {
                let text = "the map is of a shared file, and was made to be read only";
                return Err(Failure::new(libc::EACCES, text));
            }
            if wrong.access.shared && wrong.map.is_managed() {
                let text = "the engine writes to the file: its maps share one window";
                return Err(Failure::unsupported(text));
            }
        }
        for wrong in parts.iter().filter(is_wrong) {
            maps::protect(wrong, writable)?;
        }
        Ok(0)
    })
}
