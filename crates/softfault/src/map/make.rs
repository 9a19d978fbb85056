//! Making read-only maps.

use super::{Mmap, MmapKind};
use crate::access_path::AccessPath;
use crate::advice::Advice;
use crate::engine::{Engine, EngineInner};
use crate::error::FaultError;
use crate::file_map::FileMap;
use crate::files::{Look, OpenedWindow};
use crate::kernel::{KernelAccess, KernelCount, KernelMap, MapSource};
use crate::managed::Managed;
use crate::map_mut::MmapMut;
use crate::options::{Coherence, MmapAsRawDesc, MmapOptions, borrowed};
use crate::signal;
use crate::store::{self, Descriptor};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::OnTruncate;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A file to map read-only, and the look at it.
#[derive(Clone, Copy)]
pub(super) struct FileToMap<'a> {
    pub(super) fd: BorrowedFd<'a>,
    pub(super) looked: &'a Look,
    /// The same file by a descriptor of ours, where another one may not be mapped in its place.
    pub(super) own: Option<&'a Descriptor>,
}

impl<'a> FileToMap<'a> {
    /// For a mapping of the kernel's.
    fn shared(&self, offset: u64) -> MapSource<'a> {
        match self.own {
            Some(own) => MapSource::Own(own, offset, libc::MAP_SHARED),
            None => MapSource::File(self.fd, offset, libc::MAP_SHARED),
        }
    }
}

impl MmapOptions {
    /// Maps read-only over the process's default engine.
    ///
    /// # Safety
    /// See [`Engine::map`].
    pub unsafe fn map<T: MmapAsRawDesc>(&self, file: T) -> io::Result<Mmap> {
        // SAFETY: the caller vouches for it.
        unsafe { self.map_in(Engine::process_default()?, file) }
    }

    /// Maps read-only over `engine`.
    ///
    /// # Safety
    /// See [`Engine::map`].
    pub unsafe fn map_in<T: MmapAsRawDesc>(&self, engine: &Engine, file: T) -> io::Result<Mmap> {
        if engine.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }?;
        let looked = &Look::to_map(fd)?;
        self.map_file(
            engine,
            FileToMap {
                fd,
                looked,
                own: None,
            },
        )
    }

    /// Maps a file that was looked at.
    pub(super) fn map_file(&self, engine: &Engine, file: FileToMap<'_>) -> io::Result<Mmap> {
        let len = self.length(file.looked.identity.size)?;
        if len == 0 {
            Look::may_be_empty(file.fd)?;
        }
        let map = match engine.inner.managed() {
            None => {
                let map = KernelMap::new(file.shared(self.offset), len, KernelAccess::Read)?;
                Mmap::new(engine, map.start(), len, MmapKind::Kernel(map))
            }
            Some(managed) => match self.small(engine, managed, file, len) {
                Some(small) => small,
                // A window ends with its file.
                None if len == 0 => Mmap::empty(engine),
                None => self.of_window_or_written(engine, managed, file)?,
            },
        };
        if self.populate {
            map.advise(Advice::WillNeed)?;
        }
        Ok(map)
    }

    /// A mapping of the kernel for a small file, if the settings allow it and there are not too many. It is
    /// cheaper to make, to read and to drop than a window. `None` also if the kernel refuses: a window
    /// may still be possible.
    fn small(
        &self,
        engine: &Engine,
        managed: &Managed,
        file: FileToMap<'_>,
        len: usize,
    ) -> Option<Mmap> {
        let looked = file.looked;
        let EngineInner {
            files,
            options,
            small_maps,
            ..
        } = &*engine.inner;
        let right =
            managed.reads.looks_at_the_page_cache() && options.on_truncate == OnTruncate::Error;
        // An empty one is a page, too.
        let is_small = looked.identity.size.max(1) <= small_maps.most() as u64;
        if !right || !is_small || files.is_writable(&looked.identity) {
            return None;
        }
        let budget = managed.node.budget.limit() as usize * PAGE_SIZE;
        if !small_maps.take(len, budget) {
            return None;
        }
        match KernelMap::new(file.shared(self.offset), len, KernelAccess::Read) {
            Ok(map) => {
                KernelCount::SmallMaps.add(1);
                KernelCount::SmallBytes.add(len as u64);
                Some(Mmap::new(engine, map.start(), len, MmapKind::Kernel(map)))
            }
            Err(_) => {
                small_maps.give(len);
                None
            }
        }
    }

    /// Maps over a window, or over the file's shared writable map if it has one.
    fn of_window_or_written(
        &self,
        engine: &Engine,
        managed: &Managed,
        file: FileToMap<'_>,
    ) -> io::Result<Mmap> {
        let looked = file.looked;
        let masked = signal::masked();
        engine.inner.check_signals(&masked)?;
        let is_written = || engine.inner.files.is_written(&looked.identity);
        if !is_written() && !self.may_be_written(engine, managed, file) {
            match self.of_window(engine, managed, file.fd, looked) {
                // A writable map that was made meanwhile may not have seen this window.
                Ok(map) if !is_written() => return Ok(map),
                Ok(_) => {}
                // A window takes a descriptor or two, and a mapping of the kernel's none.
                Err(error) if has_run_out(&error) && self.may_be_kernels(engine, managed) => {}
                Err(error) => return Err(error),
            }
        }
        let len = self.length(looked.identity.size)?;
        let map = KernelMap::new(file.shared(self.offset), len, KernelAccess::Read)?;
        KernelCount::Shared.add(1);
        KernelCount::SharedBytes.add(len as u64);
        Ok(Mmap::of_private(MmapMut::of_kernel(engine, map)))
    }

    /// True if a map of any file may be the kernel's.
    fn may_be_kernels(&self, engine: &Engine, managed: &Managed) -> bool {
        let fails_past_the_end = engine.inner.options.on_truncate == OnTruncate::Error;
        managed.reads.kernel_may_serve() && fails_past_the_end && self.alone.is_none()
    }

    /// True if the program may write to the file by the descriptor that it maps, and the kernel may show the file. A program that does may
    /// read by the map at once what it wrote by a call, as some databases do. A window has the bytes as they were read.
    fn may_be_written(&self, engine: &Engine, managed: &Managed, file: FileToMap<'_>) -> bool {
        let by_kernel = engine.inner.options.resolved_coherence() == Coherence::Kernel;
        let may = by_kernel && self.may_be_kernels(engine, managed);
        may && !file.looked.unchangeable && store::may_be_written(file.fd).is_ok()
    }

    /// Maps a file over the process's default engine, for reading and executing. It is a mapping of the kernel, in no
    /// budget.
    ///
    /// # Safety
    /// As for memmap2: the bytes can change when any process writes to the file.
    pub unsafe fn map_exec<T: MmapAsRawDesc>(&self, file: T) -> io::Result<Mmap> {
        let engine = Engine::process_default()?;
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }?;
        let looked = Look::to_map(fd)?;
        let len = self.private_length(looked.identity.size)?;
        if len == 0 {
            Look::may_be_empty(fd)?;
        }
        let of = MapSource::File(fd, self.offset, libc::MAP_SHARED);
        let map = KernelMap::new(of, len, KernelAccess::ReadExec)?;
        KernelCount::Special.add(1);
        KernelCount::SpecialBytes.add(len as u64);
        let map = Mmap::of_private(MmapMut::of_kernel(engine, map));
        if self.populate {
            map.advise(Advice::WillNeed)?;
        }
        Ok(map)
    }

    /// Maps over a window. The file may have changed since it was `looked` at: the map has
    /// the length that the file had when the window was made.
    pub(super) fn of_window(
        &self,
        engine: &Engine,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        looked: &Look,
    ) -> io::Result<Mmap> {
        let EngineInner { files, options, .. } = &*engine.inner;
        let opened = files.open(managed, fd, looked, (options.on_truncate, self.alone))?;
        let (file, part) = FileMap::new((managed, files), AccessPath::ByLoads, opened, |opened| {
            opened.addresses(self.offset, self.length(opened.bytes)?)
        })?;
        if part.is_empty() {
            file.unmap(managed, files);
            return Ok(Mmap::empty(engine));
        }
        file.consider(managed, files);
        let kind = MmapKind::Managed(file);
        Ok(Mmap::new(engine, part.start, part.len(), kind))
    }

    /// As [`map_copy`](Self::map_copy), read-only.
    ///
    /// # Safety
    /// See [`map_copy_in`](Self::map_copy_in).
    pub unsafe fn map_copy_read_only<T: MmapAsRawDesc>(&self, file: T) -> io::Result<Mmap> {
        // SAFETY: the caller vouches for it.
        unsafe { self.map_copy_read_only_in(Engine::process_default()?, file) }
    }

    /// As [`map_copy_in`](Self::map_copy_in), read-only;
    /// [`Mmap::make_mut`] makes it writable.
    ///
    /// # Safety
    /// See [`map_copy_in`](Self::map_copy_in).
    pub unsafe fn map_copy_read_only_in<T: MmapAsRawDesc>(
        &self,
        engine: &Engine,
        file: T,
    ) -> io::Result<Mmap> {
        // SAFETY: the caller vouches for it.
        unsafe { self.map_copy_in(engine, file)?.make_read_only() }
    }
}

/// True if there is no descriptor left.
fn has_run_out(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Engine {
    /// Maps a whole file.
    ///
    /// # Safety
    /// As for memmap2's `Mmap::map`: the bytes can change when any process writes
    /// to the file or truncates it, this process included ([`truncate`](Self::truncate)).
    /// A page keeps the bytes that the file had when the page was read, until it is evicted and read
    /// again.
    pub unsafe fn map(&self, file: &File) -> io::Result<Mmap> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map_in(self, file) }
    }

    /// Maps a store of the caller. Its methods are called in the fault
    /// handler: see [`Store`](softfault_engine::Store). For tests.
    ///
    /// # Safety
    /// As for [`map`](Self::map), for the store's bytes: the store returns the same bytes for a page
    /// each time, because the engine may read the page again while the program reads it. And as
    /// for [`Builder::swap_device`], for the buffers, the cookies and the handler.
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

impl Mmap {
    /// An empty map, at a page-aligned address.
    pub(super) fn empty(engine: &Engine) -> Self {
        Self::new(engine, PAGE_SIZE, 0, MmapKind::Empty)
    }

    /// Maps a whole file over the process's default engine.
    ///
    /// # Safety
    /// See [`Engine::map`].
    pub unsafe fn map<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map(file) }
    }

    /// Read-only private memory.
    pub(crate) fn of_private(map: MmapMut) -> Self {
        let engine = map.engine().clone();
        Self::new(&engine, map.start(), map.byte_len(), MmapKind::Private(map))
    }

    /// Maps a store.
    fn of_store(engine: &Engine, store: Arc<dyn softfault_engine::Store>) -> io::Result<Self> {
        if engine.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        let Some(managed) = engine.inner.managed() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let masked = signal::masked();
        engine.inner.check_signals(&masked)?;
        let files = &engine.inner.files;
        let opened = files.open_store(managed, store, engine.inner.options.on_truncate)?;
        let (file, part) = FileMap::new(
            (managed, files),
            AccessPath::ByLoads,
            opened,
            OpenedWindow::whole,
        )?;
        let kind = MmapKind::Managed(file);
        Ok(Self::new(engine, part.start, part.len(), kind))
    }
}
