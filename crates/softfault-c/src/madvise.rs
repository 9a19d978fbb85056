//! madvise(2), and the start of reads.

use crate::access::{bytes, pages};
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{self, NotMapped, Part};
use core::ffi::{c_int, c_void};
use softfault::{Advice, UncheckedAdvice};

/// Says what to expect of accesses to pages, or gives them up; madvise(2).
///
/// addr is a multiple of the page size; length is rounded up to whole pages, and may be 0. advice is madvise(2)'s:
///   MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL: how to read ahead. Of a shared file, all of its maps in the engine;
///   MADV_WILLNEED: starts to read, as far as spare memory goes;
///   MADV_COLD, MADV_PAGEOUT: private pages go soon, or now, to swap;
///   MADV_POPULATE_READ, MADV_POPULATE_WRITE: brings pages in; what cannot be had is the error;
///   MADV_DONTNEED: private pages are zeros, or the file's, again; what the engine has of a shared file is read
///     again. MADV_FREE, MADV_REMOVE: as there;
///   MADV_DONTFORK, MADV_DOFORK: whether a child of fork has it; of a file only;
///   MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DODUMP: nothing where the engine serves
///     the map. MADV_DONTDUMP, MADV_HWPOISON: of maps that the kernel serves only.
///
/// Returns 0, or -1 with errno:
///   EFAULT      MADV_POPULATE_...: behind the end of the file
///   EINVAL      addr is no multiple of the page size, advice is none of these, or MADV_DONTNEED or MADV_FREE of locked
///               or pinned pages, or advice that this kind of map does not take
///   ENOMEM      some of the pages are not mapped by softfault: nothing was done; or the budget cannot hold them
///   EOPNOTSUPP  MADV_DONTFORK, MADV_DONTDUMP, MADV_HWPOISON of memory that the engine serves
///   and, of MADV_POPULATE_..., the error of the read.
///
/// Any threads may call this at the same time, on the same pages too.
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
                AnyAdvice::Checked(advice) => part.map.advise_range(advice, start, len)?,
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
        said.ok_or_else(|| Failure::invalid("the advice is none that is known"))
    }
}

/// Starts to read a range, as far as spare memory goes, and waits for nothing.
///
/// addr and length need be no multiples of anything. It is MADV_WILLNEED by bytes.
///
/// Returns 0, or -1 with errno:
///   EINVAL  the range is longer than addresses go
///   ENOMEM  some of the range is not mapped by softfault: nothing was done
///
/// Any threads may call this at the same time, on the same range too.
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
