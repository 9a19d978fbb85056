//! `mremap(2)` and `mprotect(2)`.

use super::{Mmap, MmapKind};
use crate::error::{FaultError, past_end};
use crate::map_mut::MmapMut;
use crate::options::RemapOptions;
use softfault_engine::mm::Protection;
use std::io;

impl Mmap {
    /// Makes a map writable that is private, or that [`MmapMut::make_read_only`] made read-only. A map that was shared and read-only
    /// from the start cannot become writable.
    pub fn make_mut(mut self) -> io::Result<MmapMut> {
        self.addresses(0..self.len)?;
        match core::mem::replace(&mut self.kind, MmapKind::Empty) {
            MmapKind::Private(mut map) if !map.is_shared_to_read() => {
                map.protect(Protection::ReadWrite)?;
                Ok(map)
            }
            kind => {
                // For `drop`.
                self.kind = kind;
                let message = "a shared read-only map cannot become writable: map the file again, with map_copy or map_mut";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
            }
        }
    }

    /// The bytes that the map can have, if it shows a window of the engine, which ends with its file.
    pub(crate) fn longest(&self) -> Option<usize> {
        let MmapKind::Managed(file) = &self.kind else {
            return None;
        };
        let cache = file.cache();
        let skip = self.start - cache.addresses().start;
        Some((cache.end() as usize).saturating_sub(skip))
    }

    /// Changes the length of the map to `new_len` bytes; its first byte stays the same. The engine
    /// maps whole files: the map of a file that it serves can grow up to the end that the file had when it was mapped first, and keeps
    /// its address.
    ///
    /// # Safety
    /// As for memmap2: bytes past `new_len` are not mapped any more, and the map may move to
    /// another address.
    pub unsafe fn remap(&mut self, new_len: usize, options: RemapOptions) -> io::Result<()> {
        self.addresses(0..self.len)?;
        let longest = self.longest();
        match &mut self.kind {
            MmapKind::Managed(_) => {
                if longest.is_some_and(|longest| new_len > longest) {
                    return Err(past_end());
                }
                self.resize(new_len);
                Ok(())
            }
            MmapKind::Private(map) => {
                // SAFETY: the caller vouches for it.
                let done = unsafe { map.remap(new_len, options) };
                (self.start, self.len) = (map.start(), map.byte_len());
                done
            }
            MmapKind::Kernel(map) => {
                let before = map.len();
                map.remap(new_len, options.moves())?;
                self.engine.inner.small_maps.resize(before, new_len);
                (self.start, self.len) = (map.start(), map.len());
                Ok(())
            }
            MmapKind::Empty if new_len == 0 => Ok(()),
            MmapKind::Empty => Err(past_end()),
            MmapKind::Inherited => Err(FaultError::OutOfRange.into()),
        }
    }
}

impl MmapMut {
    /// Makes the map read-only. A write through a stray pointer raises SIGSEGV, except in a shared map that the engine serves
    /// ([`Coherence::Engine`](crate::Coherence)): all maps of its file are one writable window, and such a write still reaches the file.
    /// [`Mmap::make_mut`] makes it writable again.
    pub fn make_read_only(mut self) -> io::Result<Mmap> {
        self.protect(Protection::Read)?;
        Ok(Mmap::of_private(self))
    }

    /// Makes the map executable and readable, and no longer writable. The engine cannot serve faults on code: memory
    /// that it serves ([`is_managed`](Self::is_managed)) is copied to a mapping of the kernel, and is **at another
    /// address** afterwards. If the code depends on its address, write it to memory made with
    /// [`MmapOptions::stack`](crate::MmapOptions::stack): that memory keeps its address.
    pub fn make_exec(self) -> io::Result<Mmap> {
        Ok(Mmap::of_private(self.into_code()?))
    }
}
