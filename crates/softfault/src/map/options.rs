//! memmap2's `MmapOptions`: what to map, and how.

use super::{Kind, Mmap};
use crate::engine::Inner;
use crate::files::Look;
use crate::kernel::{KernelMap, Of};
use crate::managed::Managed;
use crate::signal;
use crate::{Advice, Engine, FaultError};
use softfault_engine::mm::Protection;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// What can be mapped: an open file or its descriptor, as in memmap2.
pub trait MmapAsRawDesc {
    /// The descriptor.
    fn as_raw_desc(&self) -> RawFd;
}

impl MmapAsRawDesc for RawFd {
    fn as_raw_desc(&self) -> RawFd {
        *self
    }
}

impl<T: AsRawFd> MmapAsRawDesc for &T {
    fn as_raw_desc(&self) -> RawFd {
        self.as_raw_fd()
    }
}

/// How to map; memmap2's builder.
#[derive(Debug, Clone, Default)]
pub struct MmapOptions {
    pub(crate) offset: u64,
    pub(crate) len: Option<usize>,
    pub(crate) populate: bool,
}

impl MmapOptions {
    /// The whole file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts the map at this byte of the file. Any offset, as in memmap2.
    pub fn offset(&mut self, offset: u64) -> &mut Self {
        self.offset = offset;
        self
    }

    /// Bytes to map; without it, to the end of the file.
    pub fn len(&mut self, len: usize) -> &mut Self {
        self.len = Some(len);
        self
    }

    /// Starts to read everything at once, as far as the budget goes; of
    /// anonymous memory, fills all of it, or fails.
    pub fn populate(&mut self) -> &mut Self {
        self.populate = true;
        self
    }

    /// Maps read-only over the process's default engine.
    ///
    /// # Safety
    /// See [`Engine::map`].
    pub unsafe fn map<T: MmapAsRawDesc>(&self, file: T) -> io::Result<Mmap> {
        // SAFETY: the caller vouches for it.
        unsafe { self.map_with(Engine::process_default()?, file) }
    }

    /// Maps read-only over `engine`.
    ///
    /// # Safety
    /// See [`Engine::map`].
    pub unsafe fn map_with<T: MmapAsRawDesc>(&self, engine: &Engine, file: T) -> io::Result<Mmap> {
        if engine.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        let fd = file.as_raw_desc();
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: open as long as the file that it was taken from, which the
        // caller lends.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let looked = Look::to_map(fd)?;
        let len = self.length(looked.identity.size)?;
        let map = match engine.inner.managed() {
            _ if len == 0 => {
                Look::may_be_empty(fd)?;
                Mmap::new(engine, 0, 0, Kind::Empty)
            }
            None => {
                let of = Of::File(fd, self.offset, libc::MAP_SHARED);
                let map = KernelMap::new(of, len, Protection::Read)?;
                Mmap::new(engine, map.start(), len, Kind::Kernel(map))
            }
            Some(managed) => {
                let masked = signal::masked();
                engine.inner.check_signals(&masked)?;
                self.of_window(engine, managed, fd, &looked)?
            }
        };
        if self.populate {
            map.advise(Advice::WillNeed)?;
        }
        Ok(map)
    }

    /// Maps over a window. The file may have changed since it was `looked` at: the length
    /// is that of the look by which the window was made.
    pub(super) fn of_window(
        &self,
        engine: &Engine,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        looked: &Look,
    ) -> io::Result<Mmap> {
        let Inner { files, options, .. } = &*engine.inner;
        let opened = files.open(managed, fd, looked, options.on_truncate)?;
        let part = self
            .length(opened.bytes)
            .and_then(|len| opened.addresses(self.offset, len));
        match part {
            Ok(part) if !part.is_empty() => {
                let kind = Kind::Managed(opened.cache);
                Ok(Mmap::new(engine, part.start, part.len(), kind))
            }
            part => {
                files.close(managed, opened.cache);
                part.map(|_| Mmap::new(engine, 0, 0, Kind::Empty))
            }
        }
    }

    /// Bytes to map privately of a file of `size`, which may be more than it has.
    pub(crate) fn private_length(&self, size: u64) -> io::Result<usize> {
        let Some(len) = self.len else {
            return self.length(size);
        };
        if isize::try_from(len).is_err() {
            return Err(crate::error::too_large());
        }
        // As mmap's EOVERFLOW: a file has no such bytes.
        let end = self.offset.checked_add(len as u64);
        match end.is_some_and(|end| i64::try_from(end).is_ok()) {
            true => Ok(len),
            false => Err(crate::error::invalid(
                "the map would reach past what a file can have",
            )),
        }
    }

    /// Bytes to map of a file of `size`; fails where it has not that many.
    fn length(&self, size: u64) -> io::Result<usize> {
        let invalid = |message| Err(io::Error::new(io::ErrorKind::InvalidData, message));
        let rest = size.saturating_sub(self.offset);
        let len = match self.len {
            None if self.offset > size => return invalid("the offset is past the end of the file"),
            None => rest,
            Some(len) if len as u64 > rest => {
                return invalid("the map would reach past the end of the file");
            }
            Some(len) => len as u64,
        };
        match isize::try_from(len) {
            Ok(len) => Ok(len as usize),
            Err(_) => Err(crate::error::too_large()),
        }
    }
}

impl Engine {
    /// Maps a whole file.
    ///
    /// # Safety
    /// As for memmap2's `Mmap::map`: the bytes can change when somebody writes
    /// to the file or truncates it, in this process too ([`truncate`](Self::truncate)).
    /// A page keeps what was in the file when it was read, until it is evicted and read
    /// again.
    pub unsafe fn map(&self, file: &File) -> io::Result<Mmap> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map_with(self, file) }
    }

    /// Maps a store of the caller's, whose methods are called in the fault
    /// handler: see [`Store`](softfault_engine::Store). For tests.
    ///
    /// # Safety
    /// As for [`map`](Self::map), of the store's bytes: what it answers for a page is the
    /// same each time, as it may be asked again while somebody looks at the page. And as
    /// for [`Builder::swap_device`], of the buffers, the cookies and the handler.
    ///
    /// ```compile_fail,E0133
    /// use std::sync::Arc;
    /// fn safe(engine: &softfault::Engine, store: Arc<dyn softfault_engine::Store>) {
    ///     let _ = engine.map_store(store);
    /// }
    /// ```
    #[doc(hidden)]
    pub unsafe fn map_store(&self, store: Arc<dyn softfault_engine::Store>) -> io::Result<Mmap> {
        Mmap::of_store(self, store)
    }
}
