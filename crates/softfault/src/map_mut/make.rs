//! Making private maps.

use super::{MmapMut, MmapMutKind};
use crate::error::too_large;
use crate::files::Look;
use crate::kernel::{self, KernelAccess, KernelCount, KernelMap, MapSource};
use crate::options::{MmapAsRawDesc, MmapOptions, borrowed};
use crate::private::{FilePart, Private};
use crate::{Advice, Engine, signal};
use core::ops::Range;
use softfault_engine::mmu::TABLE_SPAN;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

impl MmapOptions {
    /// Maps [`len`](Self::len) bytes of anonymous memory over the process's
    /// default engine. The offset means nothing here.
    pub fn map_anon(&self) -> io::Result<MmapMut> {
        self.map_anon_in(Engine::process_default()?)
    }

    /// Maps [`len`](Self::len) bytes of anonymous memory over `engine`.
    pub fn map_anon_in(&self, engine: &Engine) -> io::Result<MmapMut> {
        let len = self.len.unwrap_or(0);
        if isize::try_from(len).is_err() {
            return Err(too_large());
        }
        let kind = match self.special() {
            Some(flags) if len > 0 => {
                special(MapSource::Nothing(flags), len, KernelAccess::ReadWrite)?
            }
            _ if len == 0 => MmapMutKind::Empty,
            _ => kind(engine, len, None)?,
        };
        let map = MmapMut::new(engine, kind);
        if self.populate {
            map.populate(..)?;
        }
        Ok(map)
    }

    /// Bytes of a page of anonymous memory that is made with these options.
    #[doc(hidden)]
    pub fn page_size(&self) -> usize {
        kernel::page_size(self.special().unwrap_or(0))
    }

    /// Bytes of a page of a map of a file that the kernel serves.
    #[doc(hidden)]
    pub fn page_size_of<T: MmapAsRawDesc>(file: T) -> io::Result<usize> {
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }?;
        Ok(kernel::page_size_of(fd))
    }

    /// Flags of mmap(2), if only the kernel can provide such memory.
    fn special(&self) -> Option<i32> {
        let stack = if self.stack { libc::MAP_STACK } else { 0 };
        let huge = self.huge.map_or(0, |bits| {
            libc::MAP_HUGETLB | (i32::from(bits) & libc::MAP_HUGE_MASK) << libc::MAP_HUGE_SHIFT
        });
        (stack | huge != 0).then_some(stack | huge)
    }

    /// Maps a file privately over the process's default engine: the map is writable,
    /// and the file does not change.
    ///
    /// # Safety
    /// See [`map_copy_in`](Self::map_copy_in).
    pub unsafe fn map_copy<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapMut> {
        // SAFETY: the caller vouches for it.
        unsafe { self.map_copy_in(Engine::process_default()?, file) }
    }

    /// Maps a file privately over `engine`: the map is writable, and the file does not
    /// change. Pages that are not yet written cost as much as those of a shared map, but belong to this
    /// map only, and are read again after an eviction. The map may reach past the
    /// end of the file: a touch there raises SIGBUS, or reads zeros
    /// ([`OnTruncate`](crate::OnTruncate)).
    ///
    /// # Safety
    /// As for [`Engine::map`]: bytes that are not yet written can change when any process
    /// writes to the file.
    pub unsafe fn map_copy_in<T: MmapAsRawDesc>(
        &self,
        engine: &Engine,
        file: T,
    ) -> io::Result<MmapMut> {
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }?;
        let looked = Look::to_map(fd)?;
        let len = self.private_length(looked.identity.size)?;
        if len == 0 {
            Look::may_be_empty(fd)?;
        }
        let map = MmapMut::new(engine, kind(engine, len, Some((fd, self.offset, looked)))?);
        if self.populate {
            map.advise(Advice::WillNeed)?;
        }
        Ok(map)
    }
}

impl Engine {
    /// Maps `len` bytes of anonymous memory. Pages are zeros until they are written; a written page counts
    /// against the budget, and goes to swap if the engine has some. See [`MmapMut`].
    pub fn map_anon(&self, len: usize) -> io::Result<MmapMut> {
        MmapOptions::new().len(len).map_anon_in(self)
    }

    /// Maps a whole file privately: the map is writable, and the file does not change.
    /// See [`MmapMut`].
    ///
    /// # Safety
    /// See [`MmapOptions::map_copy_in`].
    pub unsafe fn map_copy(&self, file: &File) -> io::Result<MmapMut> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map_copy_in(self, file) }
    }
}

impl MmapMut {
    /// A map over address space that the program has reserved by mmap(2) with PROT_NONE. It begins at a multiple of 2 MiB. All of
    /// it stays as it is until [`take_part`](Self::take_part).
    ///
    /// # Safety
    /// The program has the address space for itself, for as long as the map lives.
    #[doc(hidden)]
    pub unsafe fn over_reserved(engine: &Engine, range: &Range<usize>) -> io::Result<Self> {
        let managed = engine.inner.managed_here()?;
        let managed = managed.ok_or(io::ErrorKind::Unsupported)?;
        if range.is_empty() || !range.start.is_multiple_of(TABLE_SPAN) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let masked = signal::masked();
        engine.inner.check_signals(&masked)?;
        let private = Private::over_reserved((managed, &engine.inner.files), &masked, range)?;
        Ok(Self::new(engine, MmapMutKind::Managed(private)))
    }

    /// Maps `len` bytes of anonymous memory over the process's default engine.
    pub fn map_anon(len: usize) -> io::Result<Self> {
        MmapOptions::new().len(len).map_anon()
    }
}

/// A map of memory that only the kernel can provide.
pub(super) fn special(
    of: MapSource<'_>,
    len: usize,
    access: KernelAccess,
) -> io::Result<MmapMutKind> {
    let map = KernelMap::new(of, len, access)?;
    KernelCount::Special.add(1);
    KernelCount::SpecialBytes.add(len as u64);
    Ok(MmapMutKind::Kernel(map))
}

/// A private map of `len` bytes, of zeros or of a file from a byte on. An empty one is a page that nobody sees, so that it
/// can grow.
pub(super) fn kind(
    engine: &Engine,
    len: usize,
    of: Option<(BorrowedFd<'_>, u64, Look)>,
) -> io::Result<MmapMutKind> {
    let Some(managed) = engine.inner.managed_here()? else {
        let of = match of {
            None => MapSource::Nothing(0),
            Some((fd, offset, _)) => MapSource::File(fd, offset, libc::MAP_PRIVATE),
        };
        let map = KernelMap::new(of, len, KernelAccess::ReadWrite)?;
        return Ok(MmapMutKind::Kernel(map));
    };
    let masked = signal::masked();
    engine.inner.check_signals(&masked)?;
    let part = match of {
        None => None,
        Some((fd, offset, looked)) => Some(FilePart {
            store: engine.inner.files.store(managed, fd, &looked)?,
            offset,
            on_truncate: engine.inner.options.on_truncate,
        }),
    };
    let private = Private::new((managed, &engine.inner.files), Some(&masked), len, part)?;
    Ok(MmapMutKind::Managed(private))
}
