//! memmap2's `MmapRaw`: a map that gives out only pointers.

/// Calls a method that both have.
macro_rules! either {
    ($raw:expr, $map:ident => $call:expr) => {
        match $raw {
            Raw::Read($map) => $call,
            Raw::Write($map) => $call,
        }
    };
}

mod by_pointers;
mod kept;

pub use kept::Kept;

use crate::files::Look;
use crate::kernel::{KernelAccess, KernelCount, KernelMap, MapSource};
use crate::map::Mmap;
use crate::map_mut::MmapMut;
use crate::options::{MmapAsRawDesc, MmapOptions, RemapOptions, borrowed};
use crate::{Advice, Engine, FaultError, UncheckedAdvice};
use core::fmt;
use std::io;

/// A map that gives out only pointers, for memory that other code changes meanwhile; memmap2's `MmapRaw`.
///
/// A map made from a file is served as by [`MmapMut::map_mut`](crate::MmapMut::map_mut): by the kernel, in no budget, or by the engine
/// ([`Coherence`](crate::Coherence)). A map made from an [`Mmap`] or an [`MmapMut`] is served as before.
pub struct MmapRaw(Raw);

enum Raw {
    Read(Mmap),
    Write(MmapMut),
}

impl MmapOptions {
    /// Maps a file over the process's default engine, for writes through pointers. See
    /// [`map_mut_in`](Self::map_mut_in).
    pub fn map_raw<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapRaw> {
        // SAFETY: code that makes a reference from the map's pointer vouches for the bytes.
        let map = unsafe { self.map_mut(file) }?;
        Ok(map.into())
    }

    /// Maps a file over the process's default engine, for reads through a pointer while other code writes to it.
    pub fn map_raw_read_only<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapRaw> {
        let engine = Engine::process_default()?;
        if engine.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }?;
        let looked = Look::to_map(fd)?;
        let len = self.private_length(looked.identity.size)?;
        if len == 0 {
            Look::may_be_empty(fd)?;
        }
        if engine.inner.files.is_writable(&looked.identity) {
            // It shows the window that others write to.
            // SAFETY: it is read through a pointer.
            return Ok(unsafe { self.map(&fd) }?.into());
        }
        let of = MapSource::File(fd, self.offset, libc::MAP_SHARED);
        let map = KernelMap::new(of, len, KernelAccess::Read)?;
        KernelCount::Shared.add(1);
        KernelCount::SharedBytes.add(len as u64);
        let map = Mmap::of_private(MmapMut::of_kernel(engine, map));
        if self.populate {
            // Advice, as in mmap(2).
            let _ = map.advise(Advice::WillNeed);
        }
        Ok(map.into())
    }
}

impl MmapRaw {
    /// Maps a whole file over the process's default engine, for writes through pointers.
    pub fn map_raw<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        MmapOptions::new().map_raw(file)
    }

    /// Pointer to the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        either!(&self.0, map => map.start() as *const u8)
    }

    /// Pointer to the first byte, for writes if the map is writable: a write to a read-only map raises SIGSEGV.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.as_ptr().cast_mut()
    }

    /// Bytes of the map.
    pub fn len(&self) -> usize {
        either!(&self.0, map => map.byte_len())
    }

    /// True if the map has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the dirty pages to the file, and waits until the file's device has stored them. Of a map that only reads, pages that
    /// other maps have written to, too.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_range(0, self.len())
    }

    /// Starts to write the dirty pages, and does not wait.
    pub fn flush_async(&self) -> io::Result<()> {
        self.flush_async_range(0, self.len())
    }

    /// As [`flush`](Self::flush), for a part.
    pub fn flush_range(&self, offset: usize, len: usize) -> io::Result<()> {
        either!(&self.0, map => map.msync(offset, len, libc::MS_SYNC))
    }

    /// As [`flush_async`](Self::flush_async), for a part.
    pub fn flush_async_range(&self, offset: usize, len: usize) -> io::Result<()> {
        either!(&self.0, map => map.msync(offset, len, libc::MS_ASYNC))
    }

    /// Gives advice about all accesses to the map.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        either!(&self.0, map => map.advise(advice))
    }

    /// Gives advice about accesses to a range.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        either!(&self.0, map => map.advise_range(advice, offset, len))
    }

    /// Gives advice that may change bytes, for the whole map.
    ///
    /// # Safety
    /// As for memmap2: bytes may change. Nothing may rely on them.
    pub unsafe fn unchecked_advise(&self, advice: UncheckedAdvice) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        either!(&self.0, map => unsafe { map.unchecked_advise(advice) })
    }

    /// Gives advice that may change bytes, for a range.
    ///
    /// # Safety
    /// See [`unchecked_advise`](Self::unchecked_advise).
    pub unsafe fn unchecked_advise_range(
        &self,
        advice: UncheckedAdvice,
        offset: usize,
        len: usize,
    ) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        either!(&self.0, map => unsafe { map.unchecked_advise_range(advice, offset, len) })
    }

    /// Brings the whole map into memory, where it stays until [`unlock`](Self::unlock).
    pub fn lock(&self) -> io::Result<()> {
        either!(&self.0, map => map.lock())
    }

    /// Lets the pages be evicted again.
    pub fn unlock(&self) -> io::Result<()> {
        either!(&self.0, map => map.unlock())
    }

    /// Changes the length of the map to `new_len` bytes; its first byte stays the same.
    ///
    /// # Safety
    /// As for memmap2: bytes past `new_len` are not mapped any more, and the map may move to
    /// another address.
    pub unsafe fn remap(&mut self, new_len: usize, options: RemapOptions) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        either!(&mut self.0, map => unsafe { map.remap(new_len, options) })
    }
}

impl From<Mmap> for MmapRaw {
    fn from(map: Mmap) -> Self {
        Self(Raw::Read(map))
    }
}

impl From<MmapMut> for MmapRaw {
    fn from(map: MmapMut) -> Self {
        Self(Raw::Write(map))
    }
}

impl fmt::Debug for MmapRaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MmapRaw")
            .field("ptr", &self.as_ptr())
            .field("len", &self.len())
            .finish()
    }
}
