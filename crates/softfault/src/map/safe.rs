//! Maps of files that no process can change.

use super::Mmap;
use crate::Engine;
use crate::files::Look;
use crate::options::{MmapAsRawDesc, MmapOptions, borrowed};
use core::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The error of [`MmapOptions::map_if_safe`]; memmap2's.
#[derive(Debug)]
pub struct MapIfSafeError {
    error: io::Error,
    is_not_safe: bool,
}

impl MapIfSafeError {
    fn not_safe_because(message: &str) -> Self {
        Self {
            error: io::Error::new(io::ErrorKind::InvalidInput, message),
            is_not_safe: true,
        }
    }

    fn map_failed_with(error: io::Error) -> Self {
        Self {
            error,
            is_not_safe: false,
        }
    }

    /// Never, on Linux: the system cannot tell.
    pub fn not_supported(&self) -> bool {
        false
    }

    /// True if some process might change the file, or a map of this one, or the file has fewer bytes.
    pub fn not_safe(&self) -> bool {
        self.is_not_safe
    }

    /// True if the map would be safe, but mapping the file failed.
    pub fn map_failed(&self) -> bool {
        !self.is_not_safe
    }
}

impl fmt::Display for MapIfSafeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl core::error::Error for MapIfSafeError {}

impl From<MapIfSafeError> for io::Error {
    fn from(error: MapIfSafeError) -> Self {
        error.error
    }
}

impl MmapOptions {
    /// Maps a file that no process can write to or make shorter, and therefore needs no `unsafe`. Such a file is a memfd
    /// with the seals `F_SEAL_SHRINK` and `F_SEAL_WRITE`, or a file with
    /// [fs-verity](https://docs.kernel.org/filesystems/fsverity.html).
    pub fn map_if_safe<T: MmapAsRawDesc>(&self, file: T) -> Result<Mmap, MapIfSafeError> {
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }.map_err(MapIfSafeError::map_failed_with)?;
        cannot_change(fd)?;
        let looked = Look::to_map(fd).map_err(MapIfSafeError::map_failed_with)?;
        let size = looked.identity.size;
        let end = self.len.map(|len| self.offset.checked_add(len as u64));
        if end.is_some_and(|end| end.is_none_or(|end| end > size)) {
            let message = "the map would reach past the end of the file";
            return Err(MapIfSafeError::not_safe_because(message));
        }
        let engine = Engine::process_default().map_err(MapIfSafeError::map_failed_with)?;
        engine.inner.files.forget_writable(&looked.identity);
        // The descriptor that was looked at: `file` may answer another one the next time.
        // SAFETY: nobody can change it, as is seen below.
        let map = unsafe { self.map_in(engine, &fd) };
        let map = map.map_err(MapIfSafeError::map_failed_with)?;
        // A seal does not end the engine's writable maps from before it; after it there are no new ones.
        if map.file().is_some_and(|file| file.cache().is_writable()) {
            let message = "the process has a map of the file that writes to it";
            return Err(MapIfSafeError::not_safe_because(message));
        }
        Ok(map)
    }
}

impl Mmap {
    /// Maps a whole file that no process can change. See [`MmapOptions::map_if_safe`].
    pub fn map_if_safe<T: MmapAsRawDesc>(file: T) -> Result<Self, MapIfSafeError> {
        MmapOptions::new().map_if_safe(file)
    }
}

fn cannot_change(fd: BorrowedFd<'_>) -> Result<(), MapIfSafeError> {
    const NEEDED: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE;
    // SAFETY: only asks.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    let message = match seals {
        // Of no memory file system.
        ..0 if has_verity(fd) => return Ok(()),
        ..0 => "the file is neither a sealed memfd nor has it fs-verity",
        seals if seals & NEEDED == NEEDED => return Ok(()),
        seals if seals & libc::F_SEAL_SHRINK == 0 => "the file has no seal F_SEAL_SHRINK",
        _ => "the file has no seal F_SEAL_WRITE",
    };
    Err(MapIfSafeError::not_safe_because(message))
}

fn has_verity(fd: BorrowedFd<'_>) -> bool {
    const VERITY: libc::c_long = 0x0010_0000;
    let mut flags: libc::c_long = 0;
    // SAFETY: fills the word.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) };
    asked == 0 && flags & VERITY != 0
}
