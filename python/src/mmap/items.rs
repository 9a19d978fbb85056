//! `m[i]`, `m[i:j]` and `m[i:j:k]`, to be read and to be written to; bytes one by one.

use super::Mmap;
use crate::failure::of_page;
use crate::lent::{Lent, new_bytes};
use crate::memory::Memory;
use core::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice};
use pyo3::{PyTraverseError, PyTypeInfo, PyVisit, ffi};

/// The requested item.
enum Item {
    One(isize),
    Slice(Slice),
}

/// The numbers of a slice, of a map of any length.
struct Slice {
    start: isize,
    stop: isize,
    step: isize,
}

/// The offsets that a slice means: `count` of them, from `start` on.
struct Offsets {
    start: isize,
    step: isize,
    count: usize,
}

impl Item {
    /// The meaning of `index`. It may run code of the caller's, which may close or resize the map.
    fn of(index: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(slice) = index.cast::<PySlice>() {
            return Slice::of(slice).map(Self::Slice);
        }
        let index = number::<PyIndexError>(index, "mmap indices must be integers")?;
        Ok(Self::One(index))
    }
}

/// The number that an object is by its `__index__`, whose own exceptions are raised. One that is too large is an `E`, and an object
/// that is no number a TypeError of the text.
fn number<E: PyTypeInfo>(object: &Bound<'_, PyAny>, text: &'static str) -> PyResult<isize> {
    let (py, pointer) = (object.py(), object.as_ptr());
    // SAFETY: only looks at the object's class.
    if unsafe { ffi::PyIndex_Check(pointer) } == 0 {
        return Err(PyTypeError::new_err(text));
    }
    // SAFETY: an object, and the class of an exception.
    let number = unsafe { ffi::PyNumber_AsSsize_t(pointer, py.get_type::<E>().as_ptr()) };
    match (number, PyErr::take(py)) {
        (-1, Some(error)) => Err(error),
        _ => Ok(number),
    }
}

impl Slice {
    fn of(slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let (mut start, mut stop, mut step) = (0, 0, 0);
        // SAFETY: a slice, and three numbers to be set.
        let unpacked = unsafe {
            ffi::PySlice_Unpack(slice.as_ptr(), &raw mut start, &raw mut stop, &raw mut step)
        };
        match unpacked {
            0 => Ok(Self { start, stop, step }),
            _ => Err(PyErr::fetch(slice.py())),
        }
    }

    /// The offsets in a memory. The caller keeps that, and so its length, until it has used them.
    fn within(self, memory: &Memory) -> Offsets {
        let Self {
            mut start,
            mut stop,
            step,
        } = self;
        let len = memory.len() as isize;
        // SAFETY: two numbers to be set; the step is not 0, and no less than that which can be negated.
        let count = unsafe { ffi::PySlice_AdjustIndices(len, &raw mut start, &raw mut stop, step) };
        let count = count as usize;
        Offsets { start, step, count }
    }
}

impl Offsets {
    fn each(&self) -> impl Iterator<Item = usize> {
        let (start, step) = (self.start, self.step);
        (0..self.count as isize).map(move |place| (start + place * step) as usize)
    }
}

/// The offset that an index means.
fn offset(index: isize, memory: &Memory) -> PyResult<usize> {
    let len = memory.len() as isize;
    let at = if index < 0 {
        index.saturating_add(len)
    } else {
        index
    };
    match (0..len).contains(&at) {
        true => Ok(at as usize),
        false => Err(PyIndexError::new_err("mmap index out of range")),
    }
}

/// Copies some bytes out, without the interpreter's lock.
pub(super) fn bytes<'py>(
    py: Python<'py>,
    memory: &Memory,
    start: usize,
    len: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    new_bytes(py, len, |into| {
        // SAFETY: new bytes, which nobody else has yet.
        let copied = py.detach(|| unsafe { memory.copy_out(start, (into, len)) });
        copied.map_err(of_page)
    })
}

/// One byte.
pub(super) fn byte(py: Python<'_>, memory: &Memory, at: usize) -> PyResult<u8> {
    let mut byte = 0_u8;
    let into = &raw mut byte as usize;
    // SAFETY: a byte of our own.
    let copied = py.detach(|| unsafe { memory.copy_out(at, (into, 1)) });
    match copied.map_err(of_page)? {
        1 => Ok(byte),
        _ => Err(PyIndexError::new_err("mmap index out of range")),
    }
}

/// Sets one byte.
pub(super) fn set_byte(py: Python<'_>, memory: &Memory, at: usize, value: u8) -> PyResult<()> {
    let from = &raw const value as usize;
    // SAFETY: a byte of our own; the caller has seen that the map may be written to.
    let copied = py.detach(|| unsafe { memory.copy_in(at, (from, 1)) });
    copied.map(drop).map_err(of_page)
}

/// Bytes of a map that are looked at one after the other, of which some are kept.
struct Block<'a> {
    memory: &'a Memory,
    bytes: Vec<u8>,
    start: usize,
}

impl<'a> Block<'a> {
    const BYTES: usize = 64 << 10;

    fn new(memory: &'a Memory) -> Self {
        Self {
            memory,
            bytes: Vec::new(),
            start: 0,
        }
    }

    fn at(&mut self, py: Python<'_>, at: usize) -> PyResult<u8> {
        if at < self.start || at >= self.start + self.bytes.len() {
            self.start = at / Self::BYTES * Self::BYTES;
            let len = Self::BYTES.min(self.memory.len() - self.start);
            self.bytes.resize(len, 0);
            let into = (self.bytes.as_mut_ptr() as usize, len);
            // SAFETY: bytes of our own.
            let copied = py.detach(|| unsafe { self.memory.copy_out(self.start, into) });
            copied.map_err(of_page)?;
        }
        Ok(self.bytes[at - self.start])
    }
}

#[pymethods]
impl Mmap {
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.memory()?;
        let item = Item::of(index)?;
        let memory = self.memory()?;
        let offsets = match item {
            Item::One(index) => {
                let at = offset(index, &memory)?;
                return Ok(byte(py, &memory, at)?.into_pyobject(py)?.into_any());
            }
            Item::Slice(slice) => slice.within(&memory),
        };
        let picked = match offsets.step {
            _ if offsets.count == 0 => PyBytes::new(py, b""),
            1 => bytes(py, &memory, offsets.start as usize, offsets.count)?,
            _ => {
                let mut block = Block::new(&memory);
                new_bytes(py, offsets.count, |into| {
                    for (at, place) in offsets.each().zip(into..) {
                        let byte = block.at(py, at)?;
                        // SAFETY: one of the new bytes, which nobody else has yet.
                        unsafe { (place as *mut u8).write(byte) };
                    }
                    Ok(offsets.count)
                })?
            }
        };
        Ok(picked.into_any())
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.writable()?;
        match Item::of(index)? {
            Item::One(index) => {
                offset(index, &*self.memory()?)?;
                let value = number::<PyTypeError>(value, "mmap item value must be an int")?;
                let value = u8::try_from(value).map_err(|_| {
                    PyValueError::new_err("mmap item value must be in range(0, 256)")
                })?;
                let memory = self.writable()?;
                set_byte(py, &memory, offset(index, &memory)?, value)
            }
            Item::Slice(slice) => {
                // Code of the value's may run, as well.
                let value = Lent::to_read(value)?;
                let memory = self.writable()?;
                let offsets = slice.within(&memory);
                let (_, len) = value.place();
                if len != offsets.count {
                    let text = "mmap slice assignment is wrong size";
                    return Err(PyIndexError::new_err(text));
                }
                if offsets.count == 0 {
                    return Ok(());
                }
                if offsets.step == 1 {
                    return self.copy_in(py, &memory, offsets.start as usize, &value);
                }
                // They are copied before the first is replaced, which they may be themselves.
                for (at, byte) in offsets.each().zip(value.copied(py)?) {
                    set_byte(py, &memory, at, byte)?;
                }
                Ok(())
            }
        }
    }

    fn __delitem__(&self, _index: &Bound<'_, PyAny>) -> PyResult<()> {
        self.writable()?;
        let text = "mmap object doesn't support item deletion";
        Err(PyTypeError::new_err(text))
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PyResult<Bytes> {
        slf.get().memory()?;
        Ok(Bytes::new(slf, 0, 1))
    }

    fn __reversed__(slf: &Bound<'_, Self>) -> PyResult<Bytes> {
        let len = slf.get().memory()?.len();
        Ok(Bytes::new(slf, len as isize - 1, -1))
    }
}

/// A map's bytes one by one, each as bytes, as the standard library has it.
#[pyclass(frozen, module = "softfault._native")]
pub(super) struct Bytes {
    map: Py<Mmap>,
    /// The index of the next one, or -1 behind the last. Relaxed: it is changed by a thread that has the interpreter's lock.
    next: AtomicIsize,
    /// From one to the next. Immutable.
    step: isize,
}

impl Bytes {
    fn new(map: &Bound<'_, Mmap>, first: isize, step: isize) -> Self {
        Self {
            map: map.clone().unbind(),
            next: AtomicIsize::new(first),
            step,
        }
    }
}

#[pymethods]
impl Bytes {
    /// A map may have it as an attribute.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.map)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if self.next.load(Relaxed) < 0 {
            return Ok(None);
        }
        let memory = self.map.get().memory()?;
        let at = self.next.load(Relaxed);
        let index = usize::try_from(at).ok().filter(|&at| at < memory.len());
        let Some(index) = index else {
            // For good, also if the map becomes longer.
            self.next.store(-1, Relaxed);
            return Ok(None);
        };
        // Before the copy, during which other threads run: none of them gets the same byte.
        let after = at + self.step;
        self.next.store(after, Relaxed);
        let copied = byte(py, &memory, index);
        if copied.is_err() {
            // The byte is the next one again, unless another thread has taken one meanwhile.
            let _ = self.next.compare_exchange(after, at, Relaxed, Relaxed);
        }
        Ok(Some(PyBytes::new(py, &[copied?])))
    }
}
