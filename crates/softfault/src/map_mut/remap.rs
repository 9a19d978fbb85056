//! `mremap(2)`: maps that become longer or shorter.

use super::{MmapMut, MmapMutKind, make};
use crate::kernel::{KernelAccess, KernelMap, MapSource};
use crate::options::{MmapOptions, RemapOptions};
use crate::{FaultError, error, files};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

impl MmapMut {
    /// Changes the length of the map to `new_len` bytes; its first byte stays the same. Its pages stay
    /// in memory or in swap, and none is copied; new pages are zeros, or have the
    /// file's bytes. As with mremap, whole pages are mapped: if the last page has written bytes past `new_len`,
    /// they are visible again when the map grows, unless `new_len` is 0. An empty map of a file grows into the file's bytes,
    /// and one of anonymous memory into zeros.
    ///
    /// # Safety
    /// As for memmap2: bytes past `new_len` are not mapped any more, and the map may move to
    /// another address.
    pub unsafe fn remap(&mut self, new_len: usize, options: RemapOptions) -> io::Result<()> {
        self.addresses(0..self.len)?;
        let managed = self.engine.inner.managed();
        let done = match &mut self.kind {
            MmapMutKind::Managed(private) => {
                let managed = managed.expect("a managed map");
                private.remap(managed, new_len, options.moves())
            }
            MmapMutKind::Writable(file) => file.remap(new_len),
            MmapMutKind::Kernel(map) => map.remap(new_len, options.moves()),
            // Of anonymous memory: an empty map of a file is of another kind.
            MmapMutKind::Empty => {
                make::kind(&self.engine, new_len, None).map(|kind| self.kind = kind)
            }
            MmapMutKind::Gone => Err(gone()),
        };
        // It may have moved and failed afterwards.
        self.set_place();
        done
    }

    /// Changes the length of the map to `len` bytes, and makes its file, `file`, end where the map ends. The file grows
    /// by a hole, or is truncated; then a touch of another map past the new end raises SIGBUS. The map may move to another address.
    ///
    /// Other threads may use other maps of the file meanwhile: a touch past the new end fails, and nothing past it is written back.
    /// After an error the map and the file are unchanged, with one exception: a map that has no room to grow at its address,
    /// and can neither be made again elsewhere nor as it was, is empty, and stays so.
    pub fn set_len(&mut self, file: &File, len: usize) -> io::Result<()> {
        self.addresses(0..self.len)?;
        if isize::try_from(len).is_err() {
            return Err(error::too_large());
        }
        let end = self.offset.checked_add(len as u64);
        let end = end.ok_or_else(error::too_large)?;
        let mut outgrown = None;
        let is_its = match &self.kind {
            MmapMutKind::Writable(written) if written.was_inherited() => {
                return Err(FaultError::Forked.into());
            }
            MmapMutKind::Writable(written) => {
                let has_room = written.has_room(len)?;
                outgrown = (!has_room).then(|| written.file().cache());
                written.is_of(file)?
            }
            MmapMutKind::Kernel(_) => match &self.written {
                Some(written) => written.is_of(file)?,
                None => false,
            },
            MmapMutKind::Gone => return Err(gone()),
            // Not even the empty map of an empty file: who made it has vouched for no other.
            MmapMutKind::Managed(_) | MmapMutKind::Empty => false,
        };
        if !is_its {
            return Err(other_file());
        }
        let (before, moves) = (self.len, RemapOptions::new().may_move(true));
        // The map first: it can be cut again, and the bytes that a file loses are lost.
        if outgrown.is_some_and(|cache| self.engine.inner.files.has_one_map(cache)) {
            self.map_anew(file, len)?;
        } else if len > before {
            // SAFETY: it is borrowed, so nobody uses its bytes meanwhile.
            unsafe { self.remap(len, moves) }?;
        }
        let set = self.engine.truncate(file, end);
        let len = if set.is_ok() { len } else { before };
        let cut = match len < self.len {
            // SAFETY: as above.
            true => unsafe { self.remap(len, moves) },
            false => Ok(()),
        };
        set.and(cut)
    }

    /// Drops the present map, and maps the file again, `len` bytes of it. After an error it has the length that it had, or, if
    /// that cannot be mapped again either, none.
    fn map_anew(&mut self, file: &File, len: usize) -> io::Result<()> {
        let (engine, offset, before) = (self.engine.clone(), self.offset, self.len);
        // Through a descriptor that may not write it could not be made again.
        let of = MapSource::File(file.as_fd(), offset, libc::MAP_SHARED);
        KernelMap::new(of, 0, KernelAccess::ReadWrite)?.unmap();
        if let MmapMutKind::Writable(written) = &self.kind {
            // An error of write-back would go with the window untold.
            files::write_back(written.file().cache(), self.start..self.start + self.len);
            written.check_write_error()?;
        }
        // It stays if there is no other.
        *self = Self::new(&engine, MmapMutKind::Gone);
        let again = |len| {
            let mut options = MmapOptions::new();
            options.offset(offset).len(len);
            // SAFETY: the caller of the function that made the map vouches for the same.
            unsafe { options.map_mut_in(&engine, file) }
        };
        let mapped = again(len);
        let (map, done) = match mapped {
            Ok(map) => (Some(map), Ok(())),
            Err(error) => (again(before).ok(), Err(error)),
        };
        if let Some(map) = map {
            *self = map;
        }
        done
    }
}

fn gone() -> io::Error {
    error::no_memory(
        "the map is empty since it could be made neither longer nor as it was: map the file anew",
    )
}

fn other_file() -> io::Error {
    error::invalid("the map does not write to this file: pass the file that was mapped")
}
