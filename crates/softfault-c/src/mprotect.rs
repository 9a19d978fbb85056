//! mprotect(2).

use crate::access::{Prot, mapped_pages};
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part};
use core::ffi::{c_int, c_void};

/// Makes pages writable or read-only; mprotect(2).
///
/// addr is a multiple of the page size; length is rounded up to whole pages. The range may be a part of a map, or several
/// adjacent maps: private ones, or shared ones that the kernel serves. A call that changes nothing
/// succeeds for any range.
///
/// prot is PROT_READ or PROT_READ|PROT_WRITE. A write to a read-only page raises SIGSEGV. Pins and locks stay.
///
/// Returns 0, or -1 with errno:
///   EACCES      a map is a shared map of a file, and was made read-only
///   EINVAL      addr is no multiple of the page size, the range begins or ends within a huge page (MAP_HUGETLB), or
///               prot has unknown bits
///   ENOMEM      some of the pages are not mapped by softfault; or there is no memory to record more parts
///   EOPNOTSUPP  PROT_NONE, PROT_EXEC, or a writable shared map of a file that the engine serves
/// After an error nothing is changed, with one exception: if memory is short, the first of several maps may have changed.
///
/// Several threads may call this at the same time, also on the same map, and while others call functions on it and touch it.
/// But a thread that writes to pages while another makes them read-only gets SIGSEGV, also in softfault_copy_in and
/// softfault_read_from: let such calls end before.
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
                let text = "the map is a read-only shared map of a file: it cannot become writable";
                return Err(Failure::new(libc::EACCES, text));
            }
            if wrong.access.shared && wrong.map.is_managed() {
                let text = "the engine serves this writable map: its file's maps share one window, and no part of it can be protected";
                return Err(Failure::unsupported(text));
            }
            // Of all parts before any is changed.
            let page = wrong.map.page_size();
            let (start, end) = (wrong.range.start, wrong.range.end);
            if !(start.is_multiple_of(page) && end.is_multiple_of(page)) {
                return Err(Failure::invalid("the range has a part of a huge page"));
            }
        }
        for wrong in parts.iter().filter(is_wrong) {
            maps::protect(wrong, writable)?;
        }
        Ok(0)
    })
}
