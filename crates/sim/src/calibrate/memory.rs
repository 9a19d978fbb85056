//! Anonymous memory to measure with, and to try things on.

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
        let memory = Self::map_with(bytes, libc::MAP_NORESERVE)?;
        if huge {
            // Refused where the kernel has no huge pages.
            let _ = memory.advise(0, bytes, libc::MADV_HUGEPAGE);
        }
        Ok(memory)
    }

    /// Maps `bytes` with more flags of mmap(2), without transparent huge pages.
    pub fn map_with(bytes: usize, flags: i32) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
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

    /// madvise(2) on a part.
    pub fn advise(&self, offset: usize, bytes: usize, advice: i32) -> io::Result<()> {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: a part of our mapping, whose bytes nobody has a reference to.
        match unsafe { libc::madvise(self.start.add(offset).cast(), bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Byte `offset`, or the end.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes);
        self.start.wrapping_add(offset)
    }

    /// The byte at which an aligned run of `align` begins.
    pub fn aligned(&self, align: usize) -> usize {
        self.start.addr().next_multiple_of(align) - self.start.addr()
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

    /// For each page, whether it is present; `mincore(2)`.
    pub fn present(&self) -> io::Result<Vec<bool>> {
        let mut pages = vec![0u8; self.pages()];
        // SAFETY: a byte for each page of our mapping.
        match unsafe { libc::mincore(self.start.cast(), self.bytes, pages.as_mut_ptr()) } {
            0 => Ok(pages.iter().map(|page| page & 1 == 1).collect()),
            _ => Err(io::Error::last_os_error()),
        }
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
        (0..self.pages()).for_each(|index| self.write(index * PAGE, 1));
    }

    /// Takes all pages away.
    pub fn drop_pages(&self) -> io::Result<()> {
        self.advise(0, self.bytes, libc::MADV_DONTNEED)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, to which nobody has a reference.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
