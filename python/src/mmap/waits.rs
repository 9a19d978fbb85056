//! Methods beyond the standard library's: ranges that are brought in, system calls, pages that stay.

use super::Mmap;
use crate::calls::{count, lent_file};
use crate::failure::raised;
use crate::held::Held;
use crate::memory::Memory;
use crate::pages::{all_in, deadline};
use core::ops::Range;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The bytes from one on, `length` of them or all.
fn part(memory: &Memory, start: usize, length: Option<usize>) -> PyResult<Range<usize>> {
    let rest = memory.len().checked_sub(start);
    let length = rest.and_then(|rest| match length {
        None => Some(rest),
        Some(length) => Some(length).filter(|&length| length <= rest),
    });
    match length {
        Some(length) => Ok(start..start + length),
        None => Err(PyValueError::new_err("the range is not within the map")),
    }
}

impl Mmap {
    fn with_part(&self, start: usize, length: Option<usize>) -> PyResult<(Held, Range<usize>)> {
        let memory = self.memory()?;
        let part = part(&memory, start, length)?;
        Ok((memory, part))
    }

    /// Brings a map in that was just made. It is advice, as in mmap(2): where the budget has no room, the map is there all the same.
    pub(super) fn populate_at_first(&self, py: Python<'_>, writable_memory: bool) -> PyResult<()> {
        let (memory, all) = self.with_part(0, None)?;
        if !matches!(*memory, Memory::Served(_)) {
            return Ok(());
        }
        if !writable_memory {
            let _ = py.detach(|| memory.prefetch(all));
            return Ok(());
        }
        for part in steps(all) {
            if py.detach(|| memory.populate(part, true)).is_err() {
                break;
            }
            py.check_signals()?;
        }
        Ok(())
    }
}

/// A range in the steps in which it is populated: signals are handled between them.
fn steps(all: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    const STEP: usize = 16 << 20;
    let starts = (all.start / STEP * STEP..all.end).step_by(STEP);
    starts.map(move |start| start.max(all.start)..all.end.min(start + STEP))
}

#[pymethods]
impl Mmap {
    /// True if an engine serves the map, false if the kernel does.
    #[getter]
    fn managed(&self) -> PyResult<bool> {
        Ok(self.memory()?.is_managed())
    }

    /// Brings ranges of (start, stop) into memory, with many reads in flight. A failed read raises OSError. A range that is
    /// not in memory after `timeout` seconds raises TimeoutError.
    #[pyo3(signature = (ranges, timeout=None))]
    fn fault_in(
        &self,
        py: Python<'_>,
        ranges: Vec<(usize, usize)>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let memory = self.memory()?;
        let until = deadline(timeout)?;
        let mut offsets = Vec::with_capacity(ranges.len());
        for (start, stop) in ranges {
            let length = stop.checked_sub(start);
            let length =
                length.ok_or_else(|| PyValueError::new_err("a range ends before it starts"))?;
            offsets.push(part(&memory, start, Some(length))?);
        }
        all_in(py, &memory, offsets, until)
    }

    /// Starts to read a part, and does not wait.
    #[pyo3(signature = (start=0, length=None))]
    fn prefetch(&self, py: Python<'_>, start: usize, length: Option<usize>) -> PyResult<()> {
        let (memory, part) = self.with_part(start, length)?;
        py.detach(|| memory.prefetch(part)).map_err(raised)
    }

    /// Brings a part into memory, as reads would, or as writes would. Calls `progress(done, all)` now and then.
    #[pyo3(signature = (start=0, length=None, *, write=false, progress=None))]
    fn populate(
        &self,
        py: Python<'_>,
        start: usize,
        length: Option<usize>,
        write: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (memory, all) = match write {
            false => self.with_part(start, length)?,
            true => {
                self.writable()?;
                self.with_part(start, length)?
            }
        };
        for part in steps(all.clone()) {
            let done = part.end - all.start;
            py.detach(|| memory.populate(part, write)).map_err(raised)?;
            if let Some(progress) = progress {
                progress.call1((done, all.len()))?;
            }
            py.check_signals()?;
        }
        Ok(())
    }

    /// Writes a part to a descriptor; returns the number of bytes written, which are fewer only if the descriptor does not wait.
    #[pyo3(signature = (fd, start=0, length=None))]
    fn write_to(
        &self,
        py: Python<'_>,
        fd: i32,
        start: usize,
        length: Option<usize>,
    ) -> PyResult<usize> {
        let (memory, part) = self.with_part(start, length)?;
        let file = lent_file(fd)?;
        count(py.detach(|| memory.write_to(part, &file)))
    }

    /// Fills a part from a descriptor; returns the number of bytes read, which are fewer at the file's end, or if the descriptor does not wait.
    #[pyo3(signature = (fd, start=0, length=None))]
    fn read_from(
        &self,
        py: Python<'_>,
        fd: i32,
        start: usize,
        length: Option<usize>,
    ) -> PyResult<usize> {
        self.writable()?;
        let (memory, part) = self.with_part(start, length)?;
        let file = lent_file(fd)?;
        count(py.detach(|| memory.fill_from(part, &file)))
    }

    /// Brings the whole map into memory, where it stays until `unlock`: system calls may use it.
    fn lock(&self, py: Python<'_>) -> PyResult<()> {
        let memory = self.memory()?;
        py.detach(|| memory.lock(true)).map_err(raised)
    }

    /// Lets the pages be evicted again.
    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        let memory = self.memory()?;
        py.detach(|| memory.lock(false)).map_err(raised)
    }
}
