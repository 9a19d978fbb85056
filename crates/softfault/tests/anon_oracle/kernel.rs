//! The kernel's own private memory.

use crate::memory::Memory;
use crate::places::{PAGE, Places};
use softfault_engine::mm::MmError;
use softfault_oracle::{ARENA_PAGES, Expected, MemoryVerb};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Each map lies somewhere, and moves when it grows.
pub struct Kernel {
    places: Places,
    file: File,
    /// The pages of each map, or of the rest of one, and where they are.
    maps: Vec<(Range<usize>, usize)>,
}

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Kernel {
    pub fn new(file: File) -> Self {
        Self {
            places: Places::new(),
            file,
            maps: Vec::new(),
        }
    }

    /// The whole map that has these pages.
    fn map_of(&mut self, pages: &Range<usize>) -> &mut (Range<usize>, usize) {
        let map = self.maps.iter_mut().find(|(all, _)| all == pages);
        map.expect("a map that is there")
    }
}

impl Memory for Kernel {
    fn places(&self) -> &Places {
        &self.places
    }

    fn map(&mut self, pages: Range<usize>, from: Option<usize>) -> Result<(), MmError> {
        if !self.places.is_free(&pages) {
            return Err(MmError::Overlap);
        }
        let (kind, fd) = match from {
            None => (libc::MAP_ANONYMOUS, -1),
            Some(_) => (0, self.file.as_raw_fd()),
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | kind;
        let offset = from.map_or(0, |from| from * PAGE) as i64;
        let bytes = pages.len() * PAGE;
        // SAFETY: new memory.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, BOTH, flags, fd, offset) };
        assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        self.places.set(&pages, Some(start as usize));
        self.maps.push((pages, start as usize));
        Ok(())
    }

    fn unmap(&mut self, pages: Range<usize>) {
        let mut left = Vec::new();
        for (all, start) in self.maps.drain(..) {
            let at = |page: usize| start + (page - all.start) * PAGE;
            let part = pages.start.clamp(all.start, all.end)..pages.end.clamp(all.start, all.end);
            if !part.is_empty() {
                // SAFETY: nobody touches pages that are not in `places`.
                let done = unsafe { libc::munmap(at(part.start) as *mut _, part.len() * PAGE) };
                assert_eq!(done, 0, "{}", io::Error::last_os_error());
            }
            for rest in [all.start..part.start, part.end..all.end] {
                if !rest.is_empty() {
                    left.push((rest.clone(), at(rest.start)));
                }
            }
        }
        self.maps = left;
        self.places.set(&pages, None);
    }

    fn set_writable(&mut self, pages: Range<usize>, is_writable: bool) {
        let start = self.map_of(&pages).1;
        let protection = if is_writable { BOTH } else { libc::PROT_READ };
        let bytes = pages.len() * PAGE;
        // SAFETY: whoever touches it asks `places` first.
        let done = unsafe { libc::mprotect(start as *mut libc::c_void, bytes, protection) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        self.places.set_writable(&pages, is_writable);
    }

    fn resize(&mut self, pages: Range<usize>, len: usize) {
        let is_writable = self.places.is_writable(pages.start);
        let (all, start) = self.map_of(&pages);
        let (bytes, new_bytes) = (pages.len() * PAGE, len * PAGE);
        // SAFETY: nobody has a reference to it.
        let moved = unsafe {
            let old = *start as *mut libc::c_void;
            libc::mremap(old, bytes, new_bytes, libc::MREMAP_MAYMOVE)
        };
        assert_ne!(moved, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let moved = moved as usize;
        let new = pages.start..pages.start + len;
        (*all, *start) = (new.clone(), moved);
        self.places.set(&pages, None);
        self.places.set(&new, Some(moved));
        self.places.set_writable(&new, is_writable);
    }

    fn manage(&mut self, pages: Range<usize>, verb: MemoryVerb) -> Expected {
        let advice = match verb {
            MemoryVerb::DontNeed => Some(libc::MADV_DONTNEED),
            MemoryVerb::Free => Some(libc::MADV_FREE),
            MemoryVerb::Cold => Some(libc::MADV_COLD),
            MemoryVerb::PageOut => Some(libc::MADV_PAGEOUT),
            MemoryVerb::PopulateRead => Some(libc::MADV_POPULATE_READ),
            MemoryVerb::PopulateWrite => Some(libc::MADV_POPULATE_WRITE),
            MemoryVerb::Lock | MemoryVerb::Unlock => None,
        };
        for (all, start) in &self.maps {
            let at = |page: usize| start + (page - all.start) * PAGE;
            let part = pages.start.max(all.start)..pages.end.min(all.end);
            if !part.is_empty() {
                let (addr, bytes) = (at(part.start) as *mut libc::c_void, part.len() * PAGE);
                // SAFETY: of the arena; the model knows the bytes that are there then.
                let done = unsafe {
                    match (advice, verb) {
                        (Some(advice), _) => libc::madvise(addr, bytes, advice),
                        (None, MemoryVerb::Lock) => libc::mlock(addr, bytes),
                        (None, _) => libc::munlock(addr, bytes),
                    }
                };
                assert_eq!(done, 0, "{verb:?}: {}", io::Error::last_os_error());
            }
        }
        Expected::Done
    }

    fn clear(&mut self) {
        self.unmap(0..ARENA_PAGES);
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.clear();
    }
}
