//! System calls on memory that may not be there: pages are brought in, and kept, for as long as the kernel uses them.

use crate::failure::{handle_signals, of_page, raised};
use crate::lent::{Lent, new_bytes};
use crate::maps;
use core::mem::ManuallyDrop;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;

/// A descriptor that is lent for a call, and not closed behind it.
pub(crate) fn lent_file(fd: i32) -> PyResult<ManuallyDrop<File>> {
    // SAFETY: only asks.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(raised(io::Error::last_os_error()));
    }
    // SAFETY: it is open, and the caller's as long as the call; it is not closed here.
    Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
}

/// How many bytes went through. An error is raised, also one behind some bytes: a reader would take fewer bytes for the file's end, and a
/// writer may not look. But a descriptor that does not wait has given or taken what it could.
pub(crate) fn count((count, done): (usize, io::Result<()>)) -> PyResult<usize> {
    match done {
        Err(error) if count == 0 || error.kind() != io::ErrorKind::WouldBlock => Err(raised(error)),
        _ => Ok(count),
    }
}

/// Writes a buffer to a descriptor, in as many calls as it takes; answers how many bytes were written.
#[pyfunction]
pub(crate) fn write_from(py: Python<'_>, fd: i32, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
    let lent = Lent::to_read(buffer)?;
    let file = lent_file(fd)?;
    let (start, len) = lent.place();
    if let Some((memory, part)) = maps::of_buffer((start, len))? {
        return count(py.detach(|| memory.write_to(part, &file)));
    }
    let done = py.detach(|| {
        // SAFETY: the buffer's bytes, which stay as long as it is lent.
        let mut bytes = unsafe { core::slice::from_raw_parts(start as *const u8, len) };
        let mut file = &*file;
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return (len - bytes.len(), Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if let Err(error) = handle_signals() {
                        return (len - bytes.len(), Err(error));
                    }
                }
                Err(error) => return (len - bytes.len(), Err(error)),
            }
        }
        (len, Ok(()))
    });
    count(done)
}

/// Fills a buffer from a descriptor, in as many calls as it takes; answers how many bytes there were.
#[pyfunction]
pub(crate) fn read_into(py: Python<'_>, fd: i32, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
    let lent = Lent::to_write(buffer)?;
    let file = lent_file(fd)?;
    let (start, len) = lent.place();
    if let Some((memory, part)) = maps::of_buffer((start, len))? {
        return count(py.detach(|| memory.fill_from(part, &file)));
    }
    let done = py.detach(|| {
        // SAFETY: the buffer's bytes, which stay as long as it is lent, and may be written to.
        let bytes = unsafe { core::slice::from_raw_parts_mut(start as *mut u8, len) };
        let mut file = &*file;
        let mut filled = 0;
        while filled < len {
            match file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if let Err(error) = handle_signals() {
                        return (filled, Err(error));
                    }
                }
                Err(error) => return (filled, Err(error)),
            }
        }
        (filled, Ok(()))
    });
    count(done)
}

/// Some of a buffer's bytes, from an offset on: of memory of a map, which may have to be read.
#[pyfunction]
pub(crate) fn get<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    offset: usize,
    len: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let lent = Lent::to_read(buffer)?;
    let (start, room) = lent.place();
    if offset.checked_add(len).is_none_or(|end| end > room) {
        let text = format!("the buffer has {room} bytes, but {len} were requested at {offset}");
        return Err(PyBufferError::new_err(text));
    }
    let from = start + offset;
    let found = maps::of_buffer((from, len))?;
    new_bytes(py, len, |into| match found {
        Some((memory, part)) => {
            // SAFETY: new bytes, which nobody else has yet.
            let copied = py.detach(|| unsafe { memory.copy_out(part.start, (into, len)) });
            copied.map_err(of_page)
        }
        None => {
            // SAFETY: the buffer's bytes, which stay as long as it is lent; the others are new, and as many.
            unsafe { core::ptr::copy_nonoverlapping(from as *const u8, into as *mut u8, len) };
            Ok(len)
        }
    })
}

/// Copies bytes into a buffer, from an offset on: into memory of a map, which may have to be read.
#[pyfunction]
pub(crate) fn put(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    offset: usize,
    bytes: &Bound<'_, PyBytes>,
) -> PyResult<()> {
    let lent = Lent::to_write(buffer)?;
    let (start, room) = lent.place();
    let bytes = bytes.as_bytes();
    let (from, len) = (bytes.as_ptr() as usize, bytes.len());
    if offset.checked_add(len).is_none_or(|end| end > room) {
        let text = format!("the buffer has {room} bytes, but {len} were to be stored at {offset}");
        return Err(PyBufferError::new_err(text));
    }
    let into = start + offset;
    if let Some((memory, part)) = maps::of_buffer((into, len))? {
        // SAFETY: the bytes are an object's, and no map's; the buffer was lent to be written to.
        let copied = py.detach(|| unsafe { memory.copy_in(part.start, (from, len)) });
        return copied.map(drop).map_err(of_page);
    }
    // SAFETY: both are as long; an object's bytes are no part of a buffer that may be written to.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, into as *mut u8, len) };
    Ok(())
}
