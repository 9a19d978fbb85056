//! mmap(2) at the address that is asked for: `MAP_FIXED` and `MAP_FIXED_NOREPLACE`.
//!
//! | the range | `MAP_FIXED` | `MAP_FIXED_NOREPLACE` |
//! |---|---|---|
//! | pages of maps of zeros, unmapped ones too | zeros again, for private anonymous memory | EEXIST, if any is mapped |
//! | anything else of softfault's | EOPNOTSUPP | EEXIST |
//! | mappings of others | EOPNOTSUPP | EEXIST |
//! | nothing | EOPNOTSUPP | EOPNOTSUPP |
//!
//! The engine's page tables are those of windows that begin where a page table of the kernel's does, and that nobody else
//! has a part of; so new pages in the middle of one are of the same memory, and the engine reports another one.

use crate::access::{PAGE_SIZE, whole_pages};
use crate::failure::Failure;
use crate::maps;
use core::ffi::c_void;
use core::ops::Range;
use libc::c_int;
use std::io;

/// The pages, if mmap(2) could map them: in its order of errors.
pub(crate) fn pages(
    addr: *mut c_void,
    length: usize,
    addresses: usize,
) -> Result<Range<usize>, Failure> {
    let (start, bytes) = (addr as usize, whole_pages(length));
    let end = start.checked_add(bytes).filter(|&end| end <= addresses);
    let end = end
        .ok_or_else(|| Failure::new(libc::ENOMEM, "the range does not fit in the address space"))?;
    match start.is_multiple_of(PAGE_SIZE) {
        true => Ok(start..end),
        false => Err(Failure::invalid(
            "the address is not a multiple of the page size",
        )),
    }
}

/// EEXIST if `MAP_FIXED_NOREPLACE` is among the flags, and any of the pages is taken. [`put_zeros`] looks again, for another
/// thread may take them meanwhile: this is for the order of errors, and for addresses that are not ours.
pub(crate) fn replaces(pages: &Range<usize>, flags: c_int) -> Result<(), Failure> {
    if may_replace(flags) {
        return Ok(());
    }
    if maps::has_any(pages) {
        return Err(Failure::taken());
    }
    // An unmapped part of a map of ours is free, although its addresses are taken.
    match maps::are_of_zeros(pages) {
        true => Ok(()),
        false => asked_of_kernel(pages),
    }
}

/// Tries it.
fn asked_of_kernel(pages: &Range<usize>) -> Result<(), Failure> {
    const FLAGS: c_int =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let start = pages.start as *mut c_void;
    // SAFETY: replaces nothing.
    let put = unsafe { libc::mmap(start, pages.len(), libc::PROT_NONE, FLAGS, -1, 0) };
    if put == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EEXIST) => Failure::taken(),
            _ => error.into(),
        });
    }
    // SAFETY: the pages were just mapped, and no other code knows them.
    unsafe { libc::munmap(put, pages.len()) };
    // A kernel from before 4.17 takes the address for a hint.
    match put == start {
        true => Ok(()),
        false => Err(Failure::taken()),
    }
}

/// Puts private anonymous memory there; EEXIST as `flags` say, EOPNOTSUPP where the engine cannot.
pub(crate) fn put_zeros(pages: &Range<usize>, writable: bool, flags: c_int) -> Result<(), Failure> {
    match maps::renew(pages, writable, may_replace(flags))? {
        true => Ok(()),
        false => Err(Failure::unsupported(
            "MAP_FIXED works only over pages of maps of private anonymous memory: the engine chooses the address of other maps",
        )),
    }
}

fn may_replace(flags: c_int) -> bool {
    flags & libc::MAP_FIXED_NOREPLACE == 0
}
