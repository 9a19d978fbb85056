//! Anonymous memory to try things on.

use super::place::PAGE;
use std::io;
use std::ptr;

/// A private anonymous mapping, without huge pages; unmapped on drop.
pub struct Memory {
    start: *mut u8,
    bytes: usize,
}

impl Memory {
    /// Maps `bytes`, a multiple of a page; nothing is present.
    pub fn map(bytes: usize) -> io::Result<Self> {
        Self::map_with(bytes, 0)
    }

    /// As `map`, with more flags of mmap(2).
    pub fn map_with(bytes: usize, flags: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = Self {
            start: start.cast(),
            bytes,
        };
        // Refused where the kernel has no huge pages, which is as good.
        let _ = memory.advise(0, bytes, libc::MADV_NOHUGEPAGE);
        Ok(memory)
    }

    /// The address of byte `offset`.
    pub fn at(&self, offset: usize) -> usize {
        assert!(offset <= self.bytes);
        self.start.addr() + offset
    }

    /// madvise(2) on a part.
    pub fn advise(&self, offset: usize, bytes: usize, advice: i32) -> io::Result<()> {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: a part of our mapping, whose bytes nobody has a reference to.
        match unsafe { libc::madvise(self.start.add(offset).cast(), bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes a byte.
    pub fn write(&self, offset: usize, byte: u8) {
        assert!(offset < self.bytes);
        // SAFETY: within our mapping.
        unsafe { self.start.add(offset).write_volatile(byte) }
    }

    /// Reads a byte.
    pub fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.bytes);
        // SAFETY: within our mapping.
        unsafe { self.start.add(offset).read_volatile() }
    }

    /// The byte at which an aligned run of `align` begins.
    pub fn aligned(&self, align: usize) -> usize {
        self.start.addr().next_multiple_of(align) - self.start.addr()
    }

    /// For each page, whether it is present; `mincore(2)`.
    pub fn present(&self) -> io::Result<Vec<bool>> {
        let mut pages = vec![0u8; self.bytes / PAGE];
        // SAFETY: a byte for each page of our mapping.
        match unsafe { libc::mincore(self.start.cast(), self.bytes, pages.as_mut_ptr()) } {
            0 => Ok(pages.iter().map(|page| page & 1 == 1).collect()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody has a reference to.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
