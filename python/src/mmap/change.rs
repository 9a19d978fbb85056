//! Methods that change a map, or give advice for it.

use super::{Access, Mmap};
use crate::failure::{of_page, raised};
use crate::maps;
use crate::memory::{Memory, copy_across, page_size};
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Looks of `resize` for the end of other threads' calls: for about a second, since a call may wait for a pipe, or be this
/// thread's own, whose callback resizes the map.
const LOOKS: usize = 10_000;

/// Sleeps between two looks. Called without the interpreter's lock.
pub(super) fn wait_for_others() {
    std::thread::sleep(Duration::from_micros(100));
}

fn in_use() -> PyErr {
    PyBufferError::new_err("mmap can't resize while another thread is in a call on it")
}

/// A map that one thread resizes. Calls that begin meanwhile wait until this is dropped, and so its thread runs no code of the
/// caller's, which might make one.
struct Resized<'a> {
    map: &'a Mmap,
    /// The memory, once no call has it. Put back at the end.
    taken: Option<Arc<Memory>>,
}

impl<'a> Resized<'a> {
    fn new(map: &'a Mmap) -> PyResult<Self> {
        let mut state = map.state();
        if state.is_resized() {
            return Err(in_use());
        }
        state.resized_in = std::process::id();
        drop(state);
        Ok(Self { map, taken: None })
    }

    /// The memory, taken out of the map once no call has it.
    fn alone(&mut self, py: Python<'_>) -> PyResult<&mut Memory> {
        for _ in 0..LOOKS {
            let mut state = self.map.state();
            let exports = state.exports;
            let Some(memory) = &state.memory else {
                return Err(PyValueError::new_err("mmap closed or invalid"));
            };
            if exports > 0 {
                break;
            }
            // `find` has it for a moment, with the interpreter's lock.
            if Arc::strong_count(memory) == 1 {
                maps::leave(memory);
                self.taken = state.memory.take();
                break;
            }
            drop(state);
            py.detach(wait_for_others);
        }
        let memory = self.taken.as_mut().and_then(Arc::get_mut);
        memory.ok_or_else(in_use)
    }
}

impl Drop for Resized<'_> {
    fn drop(&mut self) {
        let taken = self.taken.take();
        // Only a map that may be written to is resized.
        taken.iter().for_each(|memory| maps::enter(memory, true));
        let mut state = self.map.state();
        state.memory = state.memory.take().or(taken);
        state.resized_in = 0;
    }
}

#[pymethods]
impl Mmap {
    /// Changes the length of the map, and of its file, to `newsize` bytes.
    #[pyo3(signature = (newsize, /))]
    fn resize(&self, py: Python<'_>, newsize: isize) -> PyResult<()> {
        let memory = self.memory()?;
        if self.state().exports > 0 {
            let text = "mmap can't resize with extant pointers exported.";
            return Err(PyBufferError::new_err(text));
        }
        if !matches!(self.access, Access::Default | Access::Write) {
            let text = "mmap can't resize a readonly or copy-on-write memory map.";
            return Err(PyTypeError::new_err(text));
        }
        if !self.trackfd {
            return Err(PyValueError::new_err(
                "mmap can't resize with trackfd=False: it keeps no file",
            ));
        }
        let len = usize::try_from(newsize)
            .ok()
            .filter(|&len| {
                (self.offset + len as u64)
                    .try_into()
                    .is_ok_and(|_: i64| true)
            })
            .ok_or_else(|| PyValueError::new_err("new size out of range"))?;
        if len == 0 {
            return Err(raised(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        // Private memory grows, also where only the kernel can map it.
        let is_shared_memory = !self.is_private && self.state().file.is_none();
        if is_shared_memory && len > memory.len() {
            let text = "mmap: can't expand a shared anonymous mapping on Linux";
            return Err(PyValueError::new_err(text));
        }
        drop(memory);
        let file = self.state().file.clone();
        let mut resized = Resized::new(self)?;
        let memory = resized.alone(py)?;
        // It may write dirty pages back, and waits for the file system.
        let done = py.detach(|| {
            let of_file = file.as_deref().map(|file| (file, self.offset));
            memory.resize(of_file, !self.is_private, len)
        });
        done.map_err(raised)
    }

    /// Copies `count` bytes from `src` to `dest`.
    #[pyo3(name = "move", signature = (dest, src, count, /))]
    fn move_(&self, py: Python<'_>, dest: isize, src: isize, count: isize) -> PyResult<()> {
        let memory = self.writable()?;
        let out = || PyValueError::new_err("source, destination, or count out of range");
        let of = |at: isize| usize::try_from(at).map_err(|_| out());
        let (dest, src, count) = (of(dest)?, of(src)?, of(count)?);
        let fits = |at: usize| at.checked_add(count).is_some_and(|end| end <= memory.len());
        if !fits(dest) || !fits(src) {
            return Err(out());
        }
        let moved = py.detach(|| copy_across((&memory, src), (&memory, dest), count));
        moved.map_err(of_page)
    }

    /// Writes the changes to the file, and waits until they are on its device.
    #[pyo3(signature = (offset=0, size=None, /))]
    fn flush(&self, py: Python<'_>, offset: isize, size: Option<isize>) -> PyResult<()> {
        let memory = self.memory()?;
        let out = || PyValueError::new_err("flush values out of range");
        let offset = usize::try_from(offset).map_err(|_| out())?;
        let rest = memory.len().checked_sub(offset).ok_or_else(out)?;
        let size = size.map_or(Ok(rest), usize::try_from).map_err(|_| out())?;
        if size > rest {
            return Err(out());
        }
        if !matches!(self.access, Access::Default | Access::Write) {
            return Ok(());
        }
        if !offset.is_multiple_of(page_size()) {
            return Err(raised(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let flushed = py.detach(|| memory.flush(offset..offset + size));
        flushed.map_err(raised)
    }

    /// Gives advice of madvise(2) about a part; `option` is one of the standard library's MADV_ constants.
    #[pyo3(signature = (option, start=0, length=None, /))]
    fn madvise(
        &self,
        py: Python<'_>,
        option: i32,
        start: isize,
        length: Option<isize>,
    ) -> PyResult<()> {
        let memory = self.memory()?;
        let start = usize::try_from(start).ok();
        let start = start.filter(|&start| start < memory.len());
        let start = start.ok_or_else(|| PyValueError::new_err("madvise start out of bounds"))?;
        let rest = memory.len() - start;
        let length = match length {
            None => rest,
            Some(length) => usize::try_from(length)
                .map_err(|_| PyValueError::new_err("madvise length invalid"))?,
        };
        if isize::try_from(start + length).is_err() {
            return Err(PyOverflowError::new_err("madvise length too large"));
        }
        if !start.is_multiple_of(page_size()) {
            return Err(raised(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let advised = py.detach(|| memory.advise(start..start + length.min(rest), option));
        advised.map_err(raised)
    }
}
