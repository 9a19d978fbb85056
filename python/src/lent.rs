//! Buffers that others lend for a call, and new bytes that are filled without the interpreter's lock.

use crate::failure::of_page;
use crate::maps;
use core::ffi::c_char;
use core::ptr::NonNull;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The bytes of an object, which keeps them where they are as long as this lives.
///
/// Not PyO3's buffer: that asks for a format, which numpy refuses for its dates.
pub(crate) struct Lent(Box<ffi::Py_buffer>);

impl Lent {
    /// Bytes to be read. They are in memory as `bytes` of the object has them, in C order.
    pub(crate) fn to_read(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let lent = Self::get(object)?;
        match lent.has_order(b'C') {
            true => Ok(lent),
            false => Err(PyBufferError::new_err("the buffer is not C-contiguous")),
        }
    }

    /// Bytes whose place alone matters, in C order or in Fortran's.
    pub(crate) fn in_any_order(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let lent = Self::get(object)?;
        match lent.has_order(b'A') {
            true => Ok(lent),
            false => Err(PyBufferError::new_err("the buffer is not contiguous")),
        }
    }

    fn get(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut buffer = Box::new(ffi::Py_buffer::new());
        // SAFETY: an object, and a structure for it that does not move until it is released; the interpreter's lock is held.
        let got = unsafe {
            ffi::PyObject_GetBuffer(object.as_ptr(), &mut *buffer, ffi::PyBUF_STRIDED_RO)
        };
        match got {
            0 => Ok(Self(buffer)),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// True if the bytes are one piece, in this order: `A` is any.
    fn has_order(&self, order: u8) -> bool {
        // SAFETY: a buffer that was filled in.
        unsafe { ffi::PyBuffer_IsContiguous(&*self.0, order as c_char) == 1 }
    }

    /// Bytes to be written to.
    pub(crate) fn to_write(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let lent = Self::to_read(object)?;
        match lent.0.readonly != 0 {
            true => Err(PyTypeError::new_err(
                "a writable bytes-like object is required",
            )),
            false => Ok(lent),
        }
    }

    /// The first byte's address, which is never null, and how many there are.
    pub(crate) fn place(&self) -> (usize, usize) {
        match self.0.len as usize {
            // A buffer of no bytes may be nowhere, and a slice may not.
            0 => (NonNull::<u8>::dangling().addr().get(), 0),
            len => (self.0.buf as usize, len),
        }
    }

    /// A copy of the bytes. They may be a map's, and wait for a read.
    pub(crate) fn copied(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let (from, len) = self.place();
        let of_map = maps::of_buffer((from, len))?;
        let mut own = room(len)?;
        let copied = py.detach(|| {
            let Some((memory, part)) = &of_map else {
                // SAFETY: the bytes are lent, and no map's.
                let bytes = unsafe { core::slice::from_raw_parts(from as *const u8, len) };
                own.extend_from_slice(bytes);
                return Ok(());
            };
            own.resize(len, 0);
            // SAFETY: bytes of our own.
            unsafe { memory.copy_out(part.start, (own.as_mut_ptr() as usize, len)) }.map(drop)
        });
        copied.map_err(of_page)?;
        Ok(own)
    }

    /// A copy of the bytes if they are a map's.
    pub(crate) fn copied_if_of_map(&self, py: Python<'_>) -> PyResult<Option<Vec<u8>>> {
        let of_map = maps::of_buffer(self.place())?;
        of_map.map(|_| self.copied(py)).transpose()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: filled in by `get`, and released once, with the interpreter's lock.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&mut *self.0) });
    }
}

/// Room for some bytes of our own, of which a caller may want more than there is memory for.
pub(crate) fn room(len: usize) -> PyResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(len);
    reserved.map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    Ok(bytes)
}

/// New bytes, which `fill` is to write to, all of them: it is given their address.
pub(crate) fn new_bytes<'py>(
    py: Python<'py>,
    len: usize,
    fill: impl FnOnce(usize) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let len = ffi::Py_ssize_t::try_from(len)?;
    // SAFETY: with a null pointer the bytes are to be filled; the object is new and ours alone, or null with an exception.
    let bytes = unsafe {
        let bytes = ffi::PyBytes_FromStringAndSize(core::ptr::null(), len);
        Bound::from_owned_ptr_or_err(py, bytes)?
    };
    // SAFETY: it is a bytes object.
    let start = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) } as usize;
    let filled = fill(start)?;
    if filled != len as usize {
        // Bytes that were not filled must not be returned.
        return Err(PyBufferError::new_err(
            "the range ends past the end of the map",
        ));
    }
    Ok(bytes.cast_into::<PyBytes>()?)
}
