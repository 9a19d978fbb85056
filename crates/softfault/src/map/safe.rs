//! Maps of files that no process can change.

use super::Mmap;
use super::make::FileToMap;
use crate::Engine;
use crate::error::FaultError;
use crate::files::Look;
use crate::options::{MmapAsRawDesc, MmapOptions, borrowed};
use crate::store::{self, Descriptor};
use core::fmt;
use std::io;

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
    /// [fs-verity](https://docs.kernel.org/filesystems/fsverity.html) on ext4, F2FS or Btrfs.
    pub fn map_if_safe<T: MmapAsRawDesc>(&self, file: T) -> Result<Mmap, MapIfSafeError> {
        // SAFETY: open as long as the file that it is taken from, which the
        // caller lends.
        let fd = unsafe { borrowed(&file) }.map_err(MapIfSafeError::map_failed_with)?;
        // Another thread may close the number meanwhile, and open another file by it. The file that is looked at here is the
        // one that is mapped.
        let own = store::duplicate(fd).map_err(io::Error::from_raw_os_error);
        let own = own.map_err(MapIfSafeError::map_failed_with)?;
        cannot_change(&own)?;
        #[cfg(test)]
        tests::BETWEEN.get()();
        let looked = Look::at_unchangeable(&own).map_err(MapIfSafeError::map_failed_with)?;
        let size = looked.identity.size;
        let end = self.len.map(|len| self.offset.checked_add(len as u64));
        if end.is_some_and(|end| end.is_none_or(|end| end > size)) {
            let message = "the map would reach past the end of the file";
            return Err(MapIfSafeError::not_safe_because(message));
        }
        let engine = Engine::process_default().map_err(MapIfSafeError::map_failed_with)?;
        engine.inner.files.forget_writable(&looked.identity);
        if engine.inner.is_parents() {
            return Err(MapIfSafeError::map_failed_with(FaultError::Forked.into()));
        }
        let file = FileToMap {
            fd,
            looked: &looked,
            own: Some(&own),
        };
        let map = self.map_file(engine, file);
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

fn cannot_change(file: &Descriptor) -> Result<(), MapIfSafeError> {
    const NEEDED: usize = (libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE) as usize;
    const SHRINK: usize = libc::F_SEAL_SHRINK as usize;
    // SAFETY: only asks.
    let seals = unsafe { file.call(libc::SYS_fcntl, [libc::F_GET_SEALS as usize, 0, 0, 0, 0]) };
    let message = match seals {
        // Of no memory file system.
        Err(_) if has_verity(file) => return Ok(()),
        Err(_) => "the file is neither a sealed memfd nor has it fs-verity",
        Ok(seals) if seals & NEEDED == NEEDED => return Ok(()),
        Ok(seals) if seals & SHRINK == 0 => "the file has no seal F_SEAL_SHRINK",
        Ok(_) => "the file has no seal F_SEAL_WRITE",
    };
    Err(MapIfSafeError::not_safe_because(message))
}

fn has_verity(file: &Descriptor) -> bool {
    const VERITY: libc::c_long = 0x0010_0000;
    if !file.file_system().is_some_and(keeps_verity) {
        return false;
    }
    let mut flags: libc::c_long = 0;
    let to = (&raw mut flags).addr();
    // SAFETY: fills the word.
    let asked = unsafe {
        file.call(
            libc::SYS_ioctl,
            [libc::FS_IOC_GETFLAGS as usize, to, 0, 0, 0],
        )
    };
    asked.is_ok() && flags & VERITY != 0
}

/// True of the file systems in which the kernel itself refuses to change a file with fs-verity: ext4, F2FS and Btrfs. Of FUSE
/// the flag is a program's word, and so it may be of others.
fn keeps_verity(file_system: u64) -> bool {
    matches!(file_system, 0xEF53 | 0xF2F5_2010 | 0x9123_683E)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    std::thread_local! {
        /// The work of others after the file was looked at.
        pub(super) static BETWEEN: Cell<fn()> = const { Cell::new(|| ()) };
        static NUMBERS: Cell<[i32; 2]> = const { Cell::new([-1; 2]) };
    }

    fn memfd(byte: u8, bytes: usize, seals: i32) -> File {
        // SAFETY: a name that ends in zero; the descriptor is new.
        let file = unsafe {
            let fd = libc::memfd_create(c"safe".as_ptr(), libc::MFD_ALLOW_SEALING);
            File::from(OwnedFd::from_raw_fd(fd))
        };
        io::Write::write_all(&mut &file, &vec![byte; bytes]).unwrap();
        // SAFETY: no memory involved.
        let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
        assert_eq!(sealed, 0);
        file
    }

    /// Another thread closes the number, and opens a file by it that anybody may write to. That one was mapped.
    #[test]
    fn the_file_that_cannot_change_is_the_one_that_is_mapped() {
        for bytes in [10_000, 64 << 20] {
            let safe = memfd(7, bytes, libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE);
            let other = memfd(1, bytes, 0);
            NUMBERS.set([other.as_raw_fd(), safe.as_raw_fd()]);
            BETWEEN.set(|| {
                let [other, number] = NUMBERS.get();
                // SAFETY: the number is the test's.
                assert_eq!(unsafe { libc::dup2(other, number) }, number);
            });
            let map = Mmap::map_if_safe(safe.as_raw_fd());
            BETWEEN.set(|| ());
            match map {
                Ok(map) => assert_eq!((map.len(), map[0]), (bytes, 7)),
                Err(error) => assert!(error.map_failed(), "{error}"),
            }
        }
    }

    #[test]
    fn only_the_kernels_own_file_systems_are_believed_about_verity() {
        // As in linux/magic.h.
        let believed = [0xEF53, 0xF2F5_2010, 0x9123_683E];
        assert!(believed.into_iter().all(keeps_verity));
        // FUSE, NFS, CIFS, 9P, overlayfs, tmpfs.
        let not = [
            0x6573_5546,
            0x6969,
            0xFF53_4D42,
            0x0102_1997,
            0x794C_7630,
            0x0102_1994,
        ];
        assert!(!not.into_iter().any(keeps_verity));
    }
}
