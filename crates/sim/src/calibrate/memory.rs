//! Anonymous memory to measure with.

use std::io;
use std::ptr;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A private anonymous mapping; unmapped on drop.
pub struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: memory belongs to no thread; all access is by raw pointers, whose
// users justify it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes`, a multiple of a page; nothing is present. `huge` asks for
    /// huge pages, else there are none.
    pub fn map(bytes: usize, huge: bool) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = match huge {
            true => libc::MADV_HUGEPAGE,
            false => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: the new mapping. Refused where the kernel has no huge pages.
        unsafe { libc::madvise(start, bytes, advice) };
        Ok(Self {
            start: start.cast(),
            bytes,
        })
    }

    /// Byte `offset`.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.bytes);
        self.start.wrapping_add(offset)
    }

    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.bytes / PAGE
    }

    /// Page `index`.
    pub fn page(&self, index: usize) -> *mut u8 {
        self.at(index * PAGE)
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes to each page, so that it is there.
    pub fn touch(&self) {
        for index in 0..self.pages() {
            // SAFETY: within the mapping, and nobody has a reference to it.
            unsafe { self.page(index).write_volatile(1) };
        }
    }

    /// Takes all pages away.
    pub fn drop_pages(&self) -> io::Result<()> {
        // SAFETY: the whole mapping, to which nobody has a reference.
        match unsafe { libc::madvise(self.start.cast(), self.bytes, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, to which nobody has a reference.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
