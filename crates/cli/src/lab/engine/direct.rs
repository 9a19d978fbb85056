//! Memory that is none: a file, read and written around the page cache, a page an access: the rate
//! of a program that has no memory at all.

use super::{Anonymous, Engine, Mapping};
use crate::lab::block::Block;
use crate::lab::fill::PAGE;
use crate::lab::job::Swap;
use crate::lab::stats::EngineStats;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Files in the directory that the swap would be in.
pub fn build(swap: &Swap) -> Result<Box<dyn Engine>, String> {
    let direct = Direct(swap.dir.clone());
    match direct.make(PAGE as usize) {
        Ok(_) => Ok(Box::new(direct)),
        Err(e) => Err(format!("O_DIRECT in {}: {e}", swap.dir.display())),
    }
}

struct Direct(PathBuf);

impl Direct {
    /// A file without a name, with room for `bytes` bytes.
    fn make(&self, bytes: usize) -> io::Result<Directly> {
        let made = tempfile::tempfile_in(&self.0)?;
        let path = format!("/proc/self/fd/{}", made.as_raw_fd());
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let file = options.open(Path::new(&path))?;
        file.set_len(bytes as u64)?;
        // SAFETY: fallocate on a descriptor that `file` owns, with no pointer.
        match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } {
            0 => Ok(Directly(file)),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Directly(file)),
                error => Err(error),
            },
        }
    }
}

impl Engine for Direct {
    fn map(&self, _: &File) -> io::Result<Box<dyn Mapping>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn map_anonymous(&self, bytes: usize) -> io::Result<Box<dyn Anonymous>> {
        Ok(Box::new(self.make(bytes)?))
    }

    fn stats(&self) -> Option<EngineStats> {
        None
    }
}

/// The file. Immutable.
struct Directly(File);

impl Anonymous for Directly {
    fn start(&self) -> Option<NonNull<u8>> {
        None
    }

    fn by_pages(&self) -> bool {
        true
    }

    /// Reads the whole page that the bytes are of.
    fn read_at(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let mut block = Block::default();
        let within = offset % PAGE as usize;
        let bytes = Block::bytes_mut(std::slice::from_mut(&mut block));
        self.0.read_exact_at(bytes, (offset - within) as u64)?;
        buffer.copy_from_slice(&bytes[within..within + buffer.len()]);
        Ok(())
    }

    fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset as u64)
    }
}
