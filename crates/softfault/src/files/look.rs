//! One look at a file: its kind, version and length.

use crate::store::{self, Descriptor, FileIdentity};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::SystemTime;

/// The result of a look at a file. A map takes its length and its window from the same look: a
/// file that is truncated between two looks has two lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) identity: FileIdentity,
    /// The wall clock before it.
    pub(crate) now_ns: i64,
    /// Nobody can change the file, which the looking thread keeps open.
    pub(crate) unchangeable: bool,
}

impl Look {
    /// Looks at an open file.
    pub(super) fn at(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let now_ns = wall_clock_ns();
        let identity = FileIdentity::of(fd)?;
        Ok(Self::new(identity, now_ns))
    }

    /// Looks at a file that is to be mapped. ENODEV, as from mmap(2), for files without
    /// pages: pipes, sockets, directories, character devices.
    pub(crate) fn to_map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let now_ns = wall_clock_ns();
        let identity = FileIdentity::of_mappable(fd)?;
        Ok(Self::new(identity, now_ns))
    }

    /// Looks at a file of ours that nobody can change.
    pub(crate) fn at_unchangeable(file: &Descriptor) -> io::Result<Self> {
        let now_ns = wall_clock_ns();
        let identity = FileIdentity::of_file(file)?;
        let looked = Self::new(identity, now_ns);
        Ok(Self {
            unchangeable: true,
            ..looked
        })
    }

    fn new(identity: FileIdentity, now_ns: i64) -> Self {
        Self {
            identity,
            now_ns,
            unchangeable: false,
        }
    }

    /// Fails if this is another file than the one that nobody can change: the program has put it in the place of that one's
    /// descriptor meanwhile.
    pub(super) fn is_still(&self, opened: &FileIdentity) -> io::Result<()> {
        let is_same = (self.identity.dev, self.identity.ino) == (opened.dev, opened.ino);
        match is_same || !self.unchangeable {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Of a map of nothing: fails where mmap(2) of a page would.
    pub(crate) fn may_be_empty(fd: BorrowedFd<'_>) -> io::Result<()> {
        store::may_be_mapped(fd)
    }
}

fn wall_clock_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i64)
}
