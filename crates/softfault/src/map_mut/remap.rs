//! `mremap(2)`: maps that become longer or shorter.

use super::{MmapMut, MmapMutKind, make};
use crate::options::{MmapOptions, RemapOptions};
use crate::{FaultError, error};
use std::fs::File;
use std::io;

impl MmapMut {
    /// Changes the length of the map to `new_len` bytes; its first byte stays the same. Its pages stay
    /// in memory or in swap, and none is copied; new pages are zeros, or have the
    /// file's bytes. As with mremap, whole pages are mapped: if the last page has written bytes past `new_len`,
    /// they are visible again when the map grows, unless `new_len` is 0. An empty map grows into
    /// zeros.
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
            MmapMutKind::Empty => {
                make::kind(&self.engine, new_len, None).map(|kind| self.kind = kind)
            }
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
    /// and cannot be made again elsewhere, is empty.
    pub fn set_len(&mut self, file: &File, len: usize) -> io::Result<()> {
        self.addresses(0..self.len)?;
        if isize::try_from(len).is_err() {
            return Err(error::too_large());
        }
        let end = self.offset.checked_add(len as u64);
        let end = end.ok_or_else(error::too_large)?;
        match &mut self.kind {
            MmapMutKind::Writable(written) if !written.was_inherited() => {
                if !written.is_of(file)? {
                    return Err(other_file());
                }
                if !written.has_room(len)? {
                    if !self.engine.inner.files.has_one_map(written.file().cache()) {
                        // It has the error.
                        return written.remap(len);
                    }
                    self.engine.truncate(file, end)?;
                    return self.map_anew(file, len);
                }
                self.engine.truncate(file, end)?;
                written.remap(len)?;
            }
            MmapMutKind::Kernel(map) => {
                let is_its = self.written.as_ref().map(|written| written.is_of(file));
                if !is_its.transpose()?.unwrap_or(false) {
                    return Err(other_file());
                }
                let before = map.len();
                if len > before {
                    map.remap(len, true)?;
                }
                let set = self.engine.truncate(file, end);
                let len = if set.is_ok() { len } else { before };
                let cut = match len < map.len() {
                    true => map.remap(len, true),
                    false => Ok(()),
                };
                self.set_place();
                return set.and(cut);
            }
            MmapMutKind::Empty if self.offset == 0 && file.metadata()?.len() == 0 => {
                self.engine.truncate(file, end)?;
                return self.map_anew(file, len);
            }
            MmapMutKind::Writable(_) => return Err(FaultError::Forked.into()),
            MmapMutKind::Managed(_) | MmapMutKind::Empty => return Err(other_file()),
        }
        self.set_place();
        Ok(())
    }

    /// Drops the present map, and maps the file again. After an error the map is empty.
    fn map_anew(&mut self, file: &File, len: usize) -> io::Result<()> {
        let (engine, offset) = (self.engine.clone(), self.offset);
        *self = Self::new(&engine, MmapMutKind::Empty);
        let mut options = MmapOptions::new();
        options.offset(offset).len(len);
        // SAFETY: the caller of the function that made the map vouches for the same.
        *self = unsafe { options.map_mut_with(&engine, file) }?;
        Ok(())
    }
}

fn other_file() -> io::Error {
    error::invalid("the map does not write to this file: pass the file that was mapped")
}
