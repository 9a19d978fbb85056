//! Shared maps that write to their file: the engine's (`files/writable.rs`), or the kernel's own, and so in no budget.
//!
//! One page of one file is in one place in an engine. So while a map of the kernel's own lives, the kernel serves the engine's
//! other maps of its file, too (`files/written.rs`); and where the engine has a window of the file that is written to, all
//! maps of it show that. What is written is seen by all of them at once.

use super::{MmapMut, MmapMutKind};
use crate::engine::EngineInner;
use crate::files::Look;
use crate::kernel::{KernelAccess, KernelCount, KernelMap, MapSource};
use crate::options::{MmapAsRawDesc, MmapOptions, borrowed};
use crate::writable::WritableFile;
use crate::{Advice, Coherence, Engine, FaultError, exit_stats, signal};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

impl MmapOptions {
    /// Maps a file over the process's default engine: what is written to the map is written to the file.
    ///
    /// # Safety
    /// See [`map_mut_with`](Self::map_mut_with).
    pub unsafe fn map_mut<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapMut> {
        // SAFETY: the caller vouches for it.
        unsafe { self.map_mut_with(Engine::process_default()?, file) }
    }

    /// Maps a file beside what `engine` has of it: what is written to the map is written to the file.
    ///
    /// With [`Coherence::Engine`] it is under the engine's budget, and what is written is in the file once it is
    /// [flushed](MmapMut::flush), and a few seconds later at most; `docs/contract.md` has all of it. Otherwise, and where that
    /// cannot be had ([`MmapMut::is_managed`] says which), it is the kernel's own mapping: in no budget (counted by [`KernelStats`](crate::KernelStats)), and whatever the program
    /// does, and however it ends, nothing that was written is lost but by a crash of the machine.
    /// [`flush`](MmapMut::flush) waits for the device. The engine's read-only maps of the file see what
    /// is written at once, as long as none of their pages are pinned or locked when this is called; those of other
    /// engines when they read the page again. The map may reach past the end of the file: a
    /// touch there raises SIGBUS.
    ///
    /// # Safety
    /// As for memmap2: whoever else writes to the file, or makes it shorter, changes the bytes.
    pub unsafe fn map_mut_with<T: MmapAsRawDesc>(
        &self,
        engine: &Engine,
        file: T,
    ) -> io::Result<MmapMut> {
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }?;
        self.shared(engine, fd, KernelAccess::ReadWrite)
    }

    /// The kernel's mapping of a file, which is served by the kernel as long as this lives.
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
            return Ok(MmapMut::new(engine, MmapMutKind::Empty));
        }
        if let Some(mut map) = self.over_engine(engine, fd, &looked, len)? {
            map.offset = self.offset;
            return Ok(map);
        }
        let map = KernelMap::new(
            MapSource::File(fd, self.offset, libc::MAP_SHARED),
            len,
            access,
        )?;
        KernelCount::Shared.add(1);
        KernelCount::SharedBytes.add(len as u64);
        let mut map = MmapMut::new(engine, MmapMutKind::Kernel(map));
        map.offset = self.offset;
        let masked = signal::masked();
        map.written = Some(engine.inner.files.begin_writing(&looked.identity));
        drop(masked);
        if self.populate {
            // Advice, as in mmap(2).
            let _ = map.populate(..);
        }
        Ok(map)
    }
}

impl MmapOptions {
    /// Over the engine, if that is wanted, or the file is so mapped already; and can be.
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
    /// Maps a whole file: what is written to the map is written to the file. See
    /// [`MmapOptions::map_mut_with`].
    ///
    /// # Safety
    /// See there.
    pub unsafe fn map_mut(&self, file: &File) -> io::Result<MmapMut> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map_mut_with(self, file) }
    }
}

impl MmapMut {
    /// Maps a whole file over the process's default engine: what is written to the map is written to
    /// the file.
    ///
    /// # Safety
    /// See [`MmapOptions::map_mut_with`].
    pub unsafe fn map_mut<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        // SAFETY: the caller vouches for it.
        unsafe { MmapOptions::new().map_mut(file) }
    }
}
