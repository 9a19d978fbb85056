//! mprotect(2).

use crate::access::{Prot, mapped_pages};
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{NotMapped, Part, Taken};
use core::ffi::{c_int, c_void};

/// Says whether a map may be written to; mprotect(2), of a whole map.
///
/// addr and length are those of a map as softfault_mmap has made it: private, or a shared one that the
/// kernel serves. A call that changes nothing succeeds for any range.
///
/// prot is PROT_READ or PROT_READ|PROT_WRITE. A write to a map that may only be read raises SIGSEGV.
///
/// Returns 0, or -1 with errno:
///   EACCES      the map is of a shared file, and was made to be read only
///   EBUSY       pages of the map are pinned, or another call uses it
///   EINVAL      addr is no multiple of the page size, or prot has unknown bits
///   ENOMEM      some of the pages are not mapped by softfault
///   EOPNOTSUPP  PROT_NONE, PROT_EXEC, a part of a map, or a shared file that the engine writes to
///
/// Any threads may call this at the same time, of different maps. A call of another thread's on the map meanwhile
/// makes this fail with EBUSY, or fails with ENOMEM itself. Touches go on meanwhile.
///
/// # Safety
/// Nobody writes to a map that may not be written to any more.
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
        let wrong = parts.iter().find(|part| part.access.writable != writable);
        let Some(wrong) = wrong else {
            return Ok(0);
        };
        if writable && wrong.access.shared {
            let text = "the map is of a shared file, and was made to be read only";
            return Err(Failure::new(libc::EACCES, text));
        }
        if wrong.access.shared && wrong.map.is_managed() {
            let text = "the engine writes to the file: its maps share one window";
            return Err(Failure::unsupported(text));
        }
        drop(parts);
        let mut taken = Taken::of(&pages)?;
        let done = taken.map.protect(writable);
        if done.is_ok() {
            taken.access.writable = writable;
        }
        taken.enter(None);
        done?;
        Ok(0)
    })
}
