//! `mremap(2)` and `mprotect(2)`.

use super::{Mmap, MmapKind};
use crate::error::{FaultError, past_end};
use crate::map_mut::MmapMut;
use crate::options::RemapOptions;
use softfault_engine::mm::Protection;
use std::io;

impl Mmap {
    /// Lets a private map be written to. A shared one cannot be.
    pub fn make_mut(mut self) -> io::Result<MmapMut> {
        self.addresses(0..self.len)?;
        match core::mem::replace(&mut self.kind, MmapKind::Empty) {
            MmapKind::Private(mut map) => {
                map.protect(Protection::ReadWrite)?;
                Ok(map)
            }
            kind => {
                // For `drop`.
                self.kind = kind;
                let message = "the map is of a shared file, which can only be read";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
            }
        }
    }

    /// Lets the map have `new_len` bytes, from the same first one on. A file that the
    /// engine serves is mapped whole anyway: the map can grow up to its end, and stays
    /// where it is.
    ///
    /// # Safety
    /// As for memmap2: bytes past `new_len` are not there any more, and all of it may be
    /// at another address.
    pub unsafe fn remap(&mut self, new_len: usize, options: RemapOptions) -> io::Result<()> {
        self.addresses(0..self.len)?;
        match &mut self.kind {
            MmapKind::Managed(file) => {
                let cache = file.cache();
                let skip = self.start - cache.addresses().start;
                let rest = (cache.end() as usize).saturating_sub(skip);
                if new_len > rest {
                    return Err(past_end());
                }
                self.resize(new_len);
                Ok(())
            }
            MmapKind::Private(map) => {
                // SAFETY: the caller vouches for it.
                let done = unsafe { map.remap(new_len, options) };
                (self.start, self.len) = (map.as_ptr() as usize, map.len());
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
            MmapKind::Inherited | MmapKind::Empty => Err(FaultError::OutOfRange.into()),
        }
    }
}

impl MmapMut {
    /// Lets it be read only: a write through a stray pointer raises SIGSEGV.
    /// [`Mmap::make_mut`] is the way back.
    pub fn make_read_only(mut self) -> io::Result<Mmap> {
        self.protect(Protection::Read)?;
        Ok(Mmap::of_private(self))
    }

    /// Lets it be executed and read, and not be written to. No touch of code can be a fault of ours: what an engine has of
    /// it ([`is_managed`](Self::is_managed)) is copied to a mapping of the kernel's own, and so is **at another
    /// address** afterwards. Code that has to know where it is, is written to memory that was made with
    /// [`MmapOptions::stack`](crate::MmapOptions::stack): it stays.
    pub fn make_exec(self) -> io::Result<Mmap> {
        Ok(Mmap::of_private(self.into_code()?))
    }
}
