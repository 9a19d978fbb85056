//! Checks of the arguments of mmap(2) and its siblings.

use crate::failure::Failure;
use core::ffi::{c_int, c_void};
use core::ops::Range;

/// Bytes of a page: the only size that the engine has.
pub(crate) const PAGE_SIZE: usize = 4096;

/// Bytes of the pages for so many bytes. They are no more than an address can say.
pub(crate) fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_SIZE)
}

/// The addresses of a range that need begin and end nowhere in particular.
pub(crate) fn bytes(addr: *const c_void, length: usize) -> Result<Range<usize>, Failure> {
    let start = addr as usize;
    let end = start.checked_add(length);
    let end = end.ok_or_else(|| Failure::invalid("the range does not fit in the address space"))?;
    Ok(start..end)
}

/// The pages of a range that begins with a page.
pub(crate) fn pages(addr: *const c_void, length: usize) -> Result<Range<usize>, Failure> {
    if !(addr as usize).is_multiple_of(PAGE_SIZE) {
        return Err(Failure::invalid(
            "the address is not a multiple of the page size",
        ));
    }
    let end = (addr as usize)
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE));
    let end = end.ok_or_else(|| Failure::invalid("the range does not fit in the address space"))?;
    Ok(addr as usize..end)
}

/// The same, for calls that answer ENOMEM to a range that no memory can be.
pub(crate) fn mapped_pages(addr: *const c_void, length: usize) -> Result<Range<usize>, Failure> {
    let pages = pages(addr, length);
    pages.map_err(|failure| match (addr as usize).is_multiple_of(PAGE_SIZE) {
        true => Failure::not_mapped(),
        false => failure,
    })
}

/// The pages that have a range.
pub(crate) fn pages_around(addr: *const c_void, length: usize) -> Result<Range<usize>, Failure> {
    let skip = addr as usize % PAGE_SIZE;
    let length = length.checked_add(skip);
    let length =
        length.ok_or_else(|| Failure::invalid("the range does not fit in the address space"))?;
    pages((addr as usize - skip) as *const c_void, length)
}

/// The protection of a map, by `PROT_` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prot {
    Read,
    Write,
}

impl Prot {
    /// By its bits. To write implies to read, as on most processors.
    pub(crate) fn of(bits: c_int) -> Result<Self, Failure> {
        const KNOWN: c_int = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        if bits & !KNOWN != 0 {
            return Err(Failure::invalid(
                "prot has bits besides PROT_READ and PROT_WRITE",
            ));
        }
        if bits & libc::PROT_EXEC != 0 {
            return Err(Failure::unsupported(
                "PROT_EXEC is not supported: map code by mmap(2)",
            ));
        }
        match (bits & libc::PROT_WRITE != 0, bits & libc::PROT_READ != 0) {
            (true, _) => Ok(Self::Write),
            (false, true) => Ok(Self::Read),
            (false, false) => Err(Failure::unsupported(
                "PROT_NONE is not supported: reserve addresses by mmap(2)",
            )),
        }
    }
}
