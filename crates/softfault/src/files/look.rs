//! One look at a file: its kind, version and length.

use crate::store::{self, FileIdentity};
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
}

impl Look {
    /// Looks at an open file.
    pub(super) fn at(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let now_ns = wall_clock_ns();
        let identity = FileIdentity::of(fd)?;
        Ok(Self { identity, now_ns })
    }

    /// Looks at a file that is to be mapped. ENODEV, as from mmap(2), for files without
    /// pages: pipes, sockets, directories, character devices.
    pub(crate) fn to_map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let now_ns = wall_clock_ns();
        let identity = FileIdentity::of_mappable(fd)?;
        Ok(Self { identity, now_ns })
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
