//! Where huge memory is mapped.
//!
//! Linux shares the page tables of two mappings only where a whole span of 1 GiB lies in both at
//! the same place within the file and within such a span. So a map that is that long begins at a
//! multiple of 1 GiB, less its offset in the file.

use crate::error::answered;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{c_int, c_void};
use std::io;

/// The span of one page table of entries of 2 MiB.
pub(super) const SPAN: usize = 1 << 30;

/// Where the last map was that is gone: most likely still free, and rightly placed for the next.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// A mapping of the kernel's.
#[derive(Debug)]
pub(super) struct SharedMapping {
    range: Range<usize>,
}

/// The mapping to make.
pub(super) struct WantedMapping {
    pub(super) fd: c_int,
    pub(super) offset: u64,
    pub(super) bytes: usize,
    /// `PROT_` flags.
    pub(super) protection: c_int,
    /// `MAP_` flags.
    pub(super) flags: c_int,
    /// A page.
    pub(super) page: usize,
}

impl SharedMapping {
    /// Maps it, shared.
    ///
    /// For reading first: of a pool's file, mmap(2) of a writable mapping makes the file as long as the mapping's end, and so would undo a
    /// truncate that came since the length was looked at. The pages are reserved all the same, and mprotect(2) leaves the length alone.
    pub(super) fn map(wanted: &WantedMapping) -> io::Result<Self> {
        let place = Self::for_reading(wanted)?;
        let (start, bytes) = (place.range.start as *mut c_void, place.range.len());
        if wanted.protection != libc::PROT_READ {
            // SAFETY: a mapping of ours, which nobody else knows.
            answered(unsafe { sync::kernel_calls::mprotect(start, bytes, wanted.protection) })?;
        }
        Ok(place)
    }

    fn for_reading(wanted: &WantedMapping) -> io::Result<Self> {
        let align = match wanted.bytes >= SPAN {
            true => SPAN.max(wanted.page),
            false => wanted.page,
        };
        let skew = (wanted.offset % align as u64) as usize;
        let fits = |start: usize| start % align == skew;
        // Relaxed: a guess.
        let hint = HINT.load(Ordering::Relaxed);
        let hint = if fits(hint) { hint } else { 0 };
        let first = wanted.at(hint, 0)?;
        if fits(first.range.start) {
            return Ok(first);
        }
        drop(first);
        let wide = nothing(wanted.bytes + align)?;
        let start = (wide.range.start - skew).next_multiple_of(align) + skew;
        // In place of a part of it; the rest is given back.
        let placed = wanted.at(start, libc::MAP_FIXED);
        let all = wide.range.clone();
        core::mem::forget(wide);
        // Where it was refused nothing may be there any more, or a mapping of another thread.
        unmap(&(all.start..start));
        unmap(&(start + wanted.bytes.next_multiple_of(wanted.page)..all.end));
        placed
    }

    /// True if a mapping of nothing can be made that is as large: one that was refused was refused for another reason than
    /// address space.
    pub(super) fn has_room(bytes: usize) -> bool {
        let around = if bytes >= SPAN { SPAN } else { 0 };
        nothing(bytes + around).is_ok()
    }

    /// Of nothing.
    pub(super) const fn none() -> Self {
        Self { range: 0..0 }
    }

    /// Its addresses.
    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// `madvise(2)` about all of it.
    pub(super) fn advise(&self, advice: c_int) {
        // SAFETY: advice about how a mapping of ours is to be served; it changes no bytes.
        unsafe {
            sync::kernel_calls::madvise(self.range.start as *mut c_void, self.range.len(), advice)
        };
    }
}

impl WantedMapping {
    fn at(&self, start: usize, fixed: c_int) -> io::Result<SharedMapping> {
        let flags = libc::MAP_SHARED | self.flags | fixed;
        // SAFETY: at an address of the kernel's choice, or in place of the range that was mapped for it.
        let addr = unsafe {
            sync::kernel_calls::mmap(
                start as *mut c_void,
                self.bytes,
                libc::PROT_READ,
                flags,
                self.fd,
                self.offset as libc::off_t,
            )
        };
        made(addr, self.bytes)
    }
}

/// Address space that is nothing yet.
fn nothing(bytes: usize) -> io::Result<SharedMapping> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let addr = unsafe {
        sync::kernel_calls::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0)
    };
    made(addr, bytes)
}

fn made(addr: *mut c_void, bytes: usize) -> io::Result<SharedMapping> {
    match addr {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        addr => Ok(SharedMapping {
            range: addr as usize..addr as usize + bytes,
        }),
    }
}

fn unmap(range: &Range<usize>) {
    if !range.is_empty() {
        // SAFETY: a mapping of ours, or a part of one, that nobody uses any more.
        unsafe { sync::kernel_calls::munmap(range.start as *mut c_void, range.len()) };
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        unmap(&self.range);
        if self.range.len() >= SPAN {
            HINT.store(self.range.start, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SharedMapping, WantedMapping};
    use crate::{HugeBacking, HugeMemory, HugeSize};
    use std::os::fd::{AsFd, AsRawFd};

    /// As if the truncate had come after the length was looked at. It needs no page of the pool.
    #[test]
    fn a_writable_mapping_leaves_the_length_alone() {
        const PAGE: usize = 2 << 20;
        let builder = HugeMemory::builder().page_size(HugeSize::TwoMiB);
        let memory = match builder.backing(HugeBacking::Hugetlb).create(PAGE as u64) {
            Ok(memory) => memory,
            Err(error) => return softfault_skip::skipped("hugetlb", error),
        };
        for bytes in [4 * PAGE, 1 << 30] {
            let wanted = WantedMapping {
                fd: memory.as_fd().as_raw_fd(),
                offset: 0,
                bytes,
                protection: libc::PROT_READ | libc::PROT_WRITE,
                flags: libc::MAP_NORESERVE,
                page: PAGE,
            };
            let _mapping = SharedMapping::map(&wanted).unwrap();
            assert_eq!(memory.bytes().unwrap(), PAGE as u64);
        }
    }
}
