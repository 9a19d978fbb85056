//! Shared maps that write to their file. The engine serves them (`files/writable.rs`), or the kernel does, in no budget.
//!
//! An engine has each page of a file only once. So while the kernel serves a writable map of a file, it also serves the engine's
//! other maps of the file (`files/written.rs`). If the engine has a writable window of the file, all its
//! maps of the file show this window. All of them see each write at once.

use super::{MmapMut, MmapMutKind};
use crate::engine::EngineInner;
use crate::file_map::populate_by_kernel;
use crate::files::Look;
use crate::kernel::{KernelAccess, KernelCount, KernelMap, MapSource};
use crate::options::{MmapAsRawDesc, MmapOptions, borrowed};
use crate::writable::WritableFile;
use crate::{Advice, Coherence, Engine, FaultError, exit_stats, signal};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

impl MmapOptions {
    /// Maps a file over the process's default engine: writes to the map go to the file.
    ///
    /// # Safety
    /// See [`map_mut_in`](Self::map_mut_in).
    pub unsafe fn map_mut<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapMut> {
        // SAFETY: the caller vouches for it.
        unsafe { self.map_mut_in(Engine::process_default()?, file) }
    }

    /// Maps a file over `engine`, together with its other maps of the file: writes to the map go to the file.
    ///
    /// With [`Coherence::Engine`] the map is under the engine's budget. A write is in the file after a
    /// [flush](MmapMut::flush), or a few seconds later; `docs/contract.md` has the full contract. With [`Coherence::Kernel`],
    /// or where the engine cannot serve the map ([`MmapMut::is_managed`] tells which), it is a mapping of the kernel, in no
    /// budget ([`KernelStats`](crate::KernelStats) counts it). However the program ends, only a crash of the machine
    /// can lose a write to it.
    /// [`flush`](MmapMut::flush) waits for the device. The engine's read-only maps of the file see each
    /// write at once, if none of their pages are pinned or locked when this is called; maps of other
    /// engines see it when they read the page again. The map may reach past the end of the file: a
    /// touch there raises SIGBUS.
    ///
    /// # Safety
    /// As for memmap2: the bytes change when any other process or thread writes to the file, or makes it shorter.
    pub unsafe fn map_mut_in<T: MmapAsRawDesc>(
        &self,
        engine: &Engine,
        file: T,
    ) -> io::Result<MmapMut> {
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }?;
        self.shared(engine, fd, KernelAccess::ReadWrite)
    }

    /// The kernel's mapping of a file; the kernel serves the file while this mapping lives.
    fn shared(
        &self,
        engine: &Engine,
        fd: BorrowedFd<'_>,
        access: KernelAccess,
    ) -> io::Result<MmapMut> {
        if engine.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        let looked = Look::to_map(fd)?;
        let len = self.private_length(looked.identity.size)?;
        if len == 0 {
            Look::may_be_empty(fd)?;
        }
        let files = &engine.inner.files;
        let mut map = MmapMut::new(engine, MmapMutKind::Empty);
        // Another thread may come first with a map of the other kind.
        while map.written.is_none() {
            if let Some(mut map) = self.over_engine(engine, fd, &looked, len)? {
                map.offset = self.offset;
                return Ok(map);
            }
            let _masked = signal::masked();
            map.written = files.begin_writing(&looked.identity);
        }
        let of = MapSource::File(fd, self.offset, libc::MAP_SHARED);
        map.kind = MmapMutKind::Kernel(KernelMap::new(of, len, access)?);
        map.set_place();
        map.offset = self.offset;
        KernelCount::Shared.add(1);
        KernelCount::SharedBytes.add(len as u64);
        if self.populate {
            // Advice, as in mmap(2). As reads would, which is what MAP_POPULATE does with a shared mapping: writes would make the whole
            // file dirty, and fill its holes.
            let _ = populate_by_kernel(&map.addresses(0..len)?, false);
        }
        Ok(map)
    }
}

impl MmapOptions {
    /// A map that the engine serves, if that is possible, and either wanted or already done for the file.
    fn over_engine(
        &self,
        engine: &Engine,
        fd: BorrowedFd<'_>,
        looked: &Look,
        len: usize,
    ) -> io::Result<Option<MmapMut>> {
        let EngineInner { files, options, .. } = &*engine.inner;
        let Some(managed) = engine.inner.managed() else {
            return Ok(None);
        };
        let wanted = options.resolved_coherence() == Coherence::Engine;
        if !wanted && !files.is_writable(&looked.identity) {
            return Ok(None);
        }
        let masked = signal::masked();
        engine.inner.check_signals(&masked)?;
        let wanted = (wanted, self.offset.saturating_add(len as u64));
        let Some(opened) = files.open_writable(managed, fd, looked, wanted)? else {
            return Ok(None);
        };
        let file = WritableFile::new((managed, files), opened, self.offset, len)?;
        exit_stats::made_writable(len);
        let map = MmapMut::new(engine, MmapMutKind::Writable(file));
        drop(masked);
        if self.populate {
            map.advise(Advice::WillNeed)?;
        }
        Ok(Some(map))
    }
}

impl Engine {
    /// Maps a whole file: writes to the map go to the file. See
    /// [`MmapOptions::map_mut_in`].
    ///
    /// # Safety
    /// See there.
    pub unsafe fn map_mut(&self, file: &File) -> io::Result<MmapMut> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map_mut_in(self, file) }
    }
}

impl MmapMut {
    /// Maps a whole file over the process's default engine: writes to the map go to
    /// the file.
    ///
    /// # Safety
    /// See [`MmapOptions::map_mut_in`].
    pub unsafe fn map_mut<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map_mut(file) }
    }
}
