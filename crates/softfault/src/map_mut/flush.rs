//! `msync(2)`, for programs that change over from memmap2: what is private is written to
//! no file.

use super::MmapMut;
use std::io;

impl MmapMut {
    /// Nothing: the map is private, and its file does not see what was written. There for
    /// code that is written for memmap2, which has it do the same for such maps.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_range(0, self.len)
    }

    /// As [`flush`](Self::flush).
    pub fn flush_async(&self) -> io::Result<()> {
        self.flush()
    }

    /// As [`flush`](Self::flush), of a part; fails if the map has no such part.
    pub fn flush_range(&self, offset: usize, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len);
        match end {
            Some(_) => Ok(()),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{len} bytes from {offset} on are not within {} bytes",
                    self.len
                ),
            )),
        }
    }

    /// As [`flush_range`](Self::flush_range).
    pub fn flush_async_range(&self, offset: usize, len: usize) -> io::Result<()> {
        self.flush_range(offset, len)
    }
}
