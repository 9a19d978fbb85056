//! `msync(2)`.

use super::{MmapMut, MmapMutKind, ServedBy};
use crate::FaultError;
use crate::error;
use crate::kernel::msync;
use core::ops::Range;
use std::io;

impl MmapMut {
    /// Writes the dirty pages to the file, and waits until the file's device has stored them. Does nothing on a private
    /// map: its writes go to no file.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_range(0, self.len)
    }

    /// Starts to write the dirty pages, and does not wait, unless the system has no thread for that.
    pub fn flush_async(&self) -> io::Result<()> {
        self.flush_async_range(0, self.len)
    }

    /// As [`flush`](Self::flush), for a part; fails if the part is not within the map.
    pub fn flush_range(&self, offset: usize, len: usize) -> io::Result<()> {
        self.msync(offset, len, libc::MS_SYNC)
    }

    /// As [`flush_async`](Self::flush_async), for a part; fails if the part is not within the map.
    pub fn flush_async_range(&self, offset: usize, len: usize) -> io::Result<()> {
        self.msync(offset, len, libc::MS_ASYNC)
    }

    /// The addresses of a part of a map in this process.
    pub(super) fn part(&self, offset: usize, len: usize) -> io::Result<Range<usize>> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len);
        let Some(end) = end else {
            let of = self.len;
            let message = format!("{len} bytes from {offset} on are not within {of} bytes");
            return Err(error::invalid(&message));
        };
        match &self.kind {
            MmapMutKind::Writable(_) if self.is_lost() => Err(FaultError::Forked.into()),
            _ => Ok(self.start + offset..self.start + end),
        }
    }

    /// By `MS_SYNC` or `MS_ASYNC`, a part.
    pub(crate) fn msync(&self, offset: usize, len: usize, how: i32) -> io::Result<()> {
        let addresses = self.part(offset, len)?;
        match self.served_by() {
            ServedBy::Kernel => msync(&addresses, how),
            ServedBy::File(file) if how == libc::MS_SYNC => {
                file.flush(&self.engine.inner.files, addresses)
            }
            ServedBy::File(file) => {
                file.flush_soon(&self.engine.inner.files, addresses);
                Ok(())
            }
            ServedBy::Private(_) | ServedBy::Nobody => Ok(()),
        }
    }
}
