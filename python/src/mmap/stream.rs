//! Methods of a file: a map has a position, at which it is read and written.

use super::{Mmap, items};
use crate::failure::{of_page, raised};
use crate::lent::Lent;
use crate::maps;
use crate::memory::{Memory, copy_across};
use memchr::memchr;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io;

/// Bytes that are looked through for the end of a line at first; each further step has twice as many.
const LINE: usize = 4 << 10;
/// The most of a step.
const MOST: usize = 256 << 10;

/// Where the line that is at `start` ends, behind its end of line if it has one.
fn line_end(memory: &Memory, start: usize) -> Result<usize, softfault::FaultError> {
    let (mut at, mut step) = (start, LINE);
    let mut bytes = Vec::new();
    while at < memory.len() {
        let len = step.min(memory.len() - at);
        bytes.resize(len, 0);
        // SAFETY: bytes of our own.
        unsafe { memory.copy_out(at, (bytes.as_mut_ptr() as usize, len)) }?;
        if let Some(end) = memchr(b'\n', &bytes[..len]) {
            return Ok(at + end + 1);
        }
        (at, step) = (at + len, (step * 2).min(MOST));
    }
    Ok(at)
}

#[pymethods]
impl Mmap {
    /// The position of the next read or write.
    fn tell(&self) -> PyResult<usize> {
        self.memory()?;
        Ok(self.state().position.at())
    }

    /// Moves the position to a byte, counted from the start, from the position (whence 1), or from the end (whence 2). Returns the
    /// new position.
    #[pyo3(signature = (pos, whence=0, /))]
    fn seek(&self, pos: isize, whence: i32) -> PyResult<usize> {
        self.move_position(|memory, position| {
            let from = match whence {
                0 => 0,
                1 => position,
                2 => memory.len(),
                _ => return Err(PyValueError::new_err("unknown seek type")),
            };
            let to = from.checked_add_signed(pos);
            let to = to.filter(|&to| to <= memory.len());
            to.ok_or_else(|| PyValueError::new_err("seek out of range"))
        })
    }

    /// True: a map has a position.
    fn seekable(&self) -> bool {
        true
    }

    /// Reads the next `n` bytes, or all bytes up to the end.
    #[pyo3(signature = (n=None, /))]
    fn read<'py>(&self, py: Python<'py>, n: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        let taken = self.reserve(|memory, at| {
            let rest = memory.len().saturating_sub(at);
            Ok(n.map_or(rest, |n| usize::try_from(n).map_or(rest, |n| n.min(rest))))
        })?;
        let bytes = items::bytes(py, &taken.memory, taken.part.start, taken.part.len())?;
        taken.used();
        Ok(bytes)
    }

    /// Fills a buffer with the next bytes; returns the number of bytes read.
    #[pyo3(signature = (buffer, /))]
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let lent = Lent::to_write(buffer)?;
        let (into, room) = lent.place();
        let other = maps::of_buffer((into, room))?;
        let taken = self.reserve(|memory, at| {
            let len = room.min(memory.len().saturating_sub(at));
            let own = memory.start()..memory.start() + memory.len();
            if into < own.end && own.start < into + len {
                let text = "the buffer is a part of the map itself: use another buffer";
                return Err(PyValueError::new_err(text));
            }
            Ok(len)
        })?;
        let (memory, at) = (&*taken.memory, taken.part.start);
        let len = taken.part.len();
        let copied = py.detach(|| match &other {
            Some((other, part)) => {
                copy_across((memory, at), (other, part.start), len).map(|()| len)
            }
            // SAFETY: the buffer is lent to be written to, and is no map's.
            None => unsafe { memory.copy_out(at, (into, len)) },
        });
        let copied = copied.map_err(of_page)?;
        taken.used();
        Ok(copied)
    }

    /// The next byte, as a number.
    fn read_byte(&self, py: Python<'_>) -> PyResult<u8> {
        let taken = self.reserve(|memory, at| match at < memory.len() {
            true => Ok(1),
            false => Err(PyValueError::new_err("read byte out of range")),
        })?;
        let byte = items::byte(py, &taken.memory, taken.part.start)?;
        taken.used();
        Ok(byte)
    }

    /// The next line, with its end.
    fn readline<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let line = self.line()?;
        let (memory, start) = (&*line.memory, line.start);
        let end = py.detach(|| line_end(memory, start)).map_err(of_page)?;
        let bytes = items::bytes(py, memory, start, end - start)?;
        line.ends(end);
        Ok(bytes)
    }

    /// Writes all of the bytes; returns their number.
    #[pyo3(signature = (bytes, /))]
    fn write(&self, py: Python<'_>, bytes: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.writable()?;
        let lent = Lent::to_read(bytes)?;
        let (_, len) = lent.place();
        let taken = self.reserve(|memory, at| match memory.len().checked_sub(at) {
            Some(rest) if len <= rest => Ok(len),
            _ => Err(PyValueError::new_err("data out of range")),
        })?;
        self.copy_in(py, &taken.memory, taken.part.start, &lent)?;
        taken.used();
        Ok(len)
    }

    /// Writes one byte.
    #[pyo3(signature = (byte, /))]
    fn write_byte(&self, py: Python<'_>, byte: u8) -> PyResult<()> {
        self.writable()?;
        let taken = self.reserve(|memory, at| match at < memory.len() {
            true => Ok(1),
            false => Err(PyValueError::new_err("write byte out of range")),
        })?;
        items::set_byte(py, &taken.memory, taken.part.start, byte)?;
        taken.used();
        Ok(())
    }

    /// Size of the file, which may be longer than the map.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        let memory = self.memory()?;
        if !self.trackfd {
            return Err(raised(io::Error::from_raw_os_error(libc::EBADF)));
        }
        let file = self.state().file.clone();
        match file {
            // The file may be on another machine.
            Some(file) => {
                let stat = py.detach(move || file.metadata());
                Ok(stat.map_err(raised)?.len())
            }
            None => Ok(memory.len() as u64),
        }
    }
}
