//! madvise(2), and the start of reads.

use crate::access::{bytes, pages};
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part};
use core::ffi::{c_int, c_void};
use softfault::{Advice, UncheckedAdvice};

/// Gives advice about accesses to pages, or drops the pages; madvise(2).
///
/// addr is a multiple of the page size; length is rounded up to whole pages, and may be 0. advice is one of madvise(2):
///   MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL: how to read ahead. For a shared file: in all of its maps in the engine;
///   MADV_WILLNEED: starts to read, as far as spare memory goes;
///   MADV_COLD, MADV_PAGEOUT: private pages go to swap soon (COLD), or now (PAGEOUT);
///   MADV_POPULATE_READ, MADV_POPULATE_WRITE: brings the pages in, or returns the error;
///   MADV_DONTNEED: private pages are zeros again, or have the file's bytes; pages of a shared file that the engine
///     serves are read again. MADV_FREE, MADV_REMOVE: as in madvise(2);
///   MADV_DONTFORK, MADV_DOFORK: whether a child of fork inherits the map; for maps of files only;
///   MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DODUMP: no effect if the engine serves
///     the map. MADV_DONTDUMP, MADV_HWPOISON: only for maps that the kernel serves.
///
/// Returns 0, or -1 with errno:
///   EFAULT      MADV_POPULATE_...: past the end of the file
///   EINVAL      addr is no multiple of the page size, advice is none of these, or MADV_DONTNEED or MADV_FREE for locked
///               pages or for private pages that are pinned, or advice that this kind of map does not take. Pinned pages of a
///               shared file are read again when their last pin ends
///   ENOMEM      some of the pages are not mapped by softfault: nothing was done; or the budget has no room for them
///   EOPNOTSUPP  MADV_DONTFORK, MADV_DONTDUMP, MADV_HWPOISON for memory that the engine serves
///   or, for MADV_POPULATE_..., the error of the read.
///
/// Several threads may call this at the same time, also on the same pages.
///
/// # Safety
/// Nobody relies on bytes that the advice gives up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_madvise(
    addr: *mut c_void,
    length: usize,
    advice: c_int,
) -> c_int {
    answer(-1, || {
        let advice = AnyAdvice::of(advice)?;
        let pages = pages(addr, length)?;
        let parts = Part::of(&pages).map_err(|NotMapped| Failure::not_mapped())?;
        for part in &parts {
            let offsets = part.offsets();
            let (start, len) = (offsets.start, offsets.len());
            match advice {
                AnyAdvice::Checked(advice) => {
                    part.map.advise_range(advice, start, len)?;
                    let is_about_children = matches!(advice, Advice::DontFork | Advice::DoFork);
                    // The place of a window of the engine's stays taken in a child.
                    if is_about_children && !part.map.is_managed() {
                        maps::allow_inherit(&part.range, advice == Advice::DoFork);
                    }
                }
                AnyAdvice::Unchecked(_) if maps::is_locked(&part.range) => {
                    return Err(Failure::invalid("pages of the range are locked in memory"));
                }
                // SAFETY: the caller's: nobody relies on the bytes.
                AnyAdvice::Unchecked(advice) => unsafe {
                    part.map.unchecked_advise_range(advice, start, len)?;
                },
            }
        }
        Ok(0)
    })
}

/// The kinds of advice.
#[derive(Clone, Copy)]
enum AnyAdvice {
    Checked(Advice),
    Unchecked(UncheckedAdvice),
}

impl AnyAdvice {
    fn of(advice: c_int) -> Result<Self, Failure> {
        let checked = Advice::of_number(advice).map(Self::Checked);
        let said = checked.or_else(|| UncheckedAdvice::of_number(advice).map(Self::Unchecked));
        said.ok_or_else(|| Failure::invalid(format!("advice {advice} is unknown")))
    }
}

/// Starts to read a range, as far as spare memory goes, and does not wait.
///
/// addr and length may have any values. It is MADV_WILLNEED for a range of bytes.
///
/// Returns 0, or -1 with errno:
///   EINVAL  the range does not fit in the address space
///   ENOMEM  some of the range is not mapped by softfault: nothing was done
///
/// Several threads may call this at the same time, also on the same range.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_prefetch(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        let range = bytes(addr, length)?;
        let parts = Part::of(&range).map_err(|NotMapped| Failure::not_mapped())?;
        for part in &parts {
            part.map.prefetch(part.offsets())?;
        }
        Ok(0)
    })
}
