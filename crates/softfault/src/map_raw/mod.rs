//! memmap2's `MmapRaw`: a map of which only pointers are given away.

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

use crate::kernel::{KernelAccess, KernelCount, KernelMap, MapSource};
use crate::map::Mmap;
use crate::map_mut::MmapMut;
use crate::options::{MmapAsRawDesc, MmapOptions, RemapOptions, borrowed};
use crate::{Advice, Engine, FaultError, UncheckedAdvice};
use core::fmt;
use std::io;

/// A map of which only pointers are given away: for memory that others change meanwhile; memmap2's `MmapRaw`.
///
/// Made from a file, it is the kernel's own mapping, in no budget, and sees at once what others write. Made from an
/// [`Mmap`] or an [`MmapMut`] it stays what that was.
pub struct MmapRaw(Raw);

enum Raw {
    Read(Mmap),
    Write(MmapMut),
}

impl MmapOptions {
    /// Maps a file over the process's default engine, to be written to through pointers. See
    /// [`map_mut_with`](Self::map_mut_with).
    pub fn map_raw<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapRaw> {
        // SAFETY: whoever makes a reference from the map's pointer vouches for the bytes.
        let map = unsafe { self.map_mut(file) }?;
        Ok(map.into())
    }

    /// Maps a file over the process's default engine, to be read through a pointer while others write to it.
    pub fn map_raw_read_only<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapRaw> {
        let engine = Engine::process_default()?;
        if engine.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }?;
        let looked = crate::files::Look::to_map(fd)?;
        let len = self.private_length(looked.identity.size)?;
        if len == 0 {
            // SAFETY: there are no bytes.
            return Ok(unsafe { self.map(file) }?.into());
        }
        if engine.inner.files.is_writable(&looked.identity) {
            // It shows the window that others write to.
            // SAFETY: it is read through a pointer.
            return Ok(unsafe { self.map(file) }?.into());
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
    /// Maps a whole file over the process's default engine, to be written to through pointers.
    pub fn map_raw<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        MmapOptions::new().map_raw(file)
    }

    /// Its first byte.
    pub fn as_ptr(&self) -> *const u8 {
        either!(&self.0, map => map.start() as *const u8)
    }

    /// Its first byte, to be written to if the map was made for that: a write to another raises SIGSEGV.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.as_ptr().cast_mut()
    }

    /// Bytes of the map.
    pub fn len(&self) -> usize {
        either!(&self.0, map => map.len())
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until what was written is on the file's device.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_range(0, self.len())
    }

    /// Starts to write it, and waits for nothing.
    pub fn flush_async(&self) -> io::Result<()> {
        self.flush_async_range(0, self.len())
    }

    /// As [`flush`](Self::flush), of a part.
    pub fn flush_range(&self, offset: usize, len: usize) -> io::Result<()> {
        match &self.0 {
            Raw::Read(map) => map.has(offset, len),
            Raw::Write(map) => map.flush_range(offset, len),
        }
    }

    /// As [`flush_async`](Self::flush_async), of a part.
    pub fn flush_async_range(&self, offset: usize, len: usize) -> io::Result<()> {
        match &self.0 {
            Raw::Read(map) => map.has(offset, len),
            Raw::Write(map) => map.flush_async_range(offset, len),
        }
    }

    /// Says what to expect of all accesses.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        either!(&self.0, map => map.advise(advice))
    }

    /// Says what to expect of accesses to a range.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        either!(&self.0, map => map.advise_range(advice, offset, len))
    }

    /// Gives all of it away, or up.
    ///
    /// # Safety
    /// As for memmap2: bytes may change. Nobody relies on them.
    pub unsafe fn unchecked_advise(&self, advice: UncheckedAdvice) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        either!(&self.0, map => unsafe { map.unchecked_advise(advice) })
    }

    /// Gives a range away, or up.
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

    /// Brings all of it into memory, where it stays until [`unlock`](Self::unlock).
    pub fn lock(&self) -> io::Result<()> {
        either!(&self.0, map => map.lock())
    }

    /// Lets it be evicted again.
    pub fn unlock(&self) -> io::Result<()> {
        either!(&self.0, map => map.unlock())
    }

    /// Lets the map have `new_len` bytes, from the same first one on.
    ///
    /// # Safety
    /// As for memmap2: bytes past `new_len` are not there any more, and all of it may be
    /// at another address.
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
