//! `find` and `rfind`.

use super::Mmap;
use crate::failure::of_page;
use crate::lent::{Lent, room};
use crate::memory::{Memory, STEP};
use core::ops::Range;
use memchr::memmem;
use pyo3::prelude::*;
use softfault::FaultError;

impl Mmap {
    /// The part that two arguments mean, as slices have it: from the position on, if there is no first.
    fn part(&self, memory: &Memory, start: Option<isize>, end: Option<isize>) -> Range<usize> {
        let len = memory.len();
        let clamp = |at: isize| match usize::try_from(at) {
            Ok(at) => at.min(len),
            Err(_) => len.saturating_sub(at.unsigned_abs()),
        };
        let start = start.map_or_else(|| self.state().position.at().min(len), clamp);
        start..end.map_or(len, clamp)
    }

    fn search(
        &self,
        py: Python<'_>,
        sub: &Bound<'_, PyAny>,
        (start, end): (Option<isize>, Option<isize>),
        last: bool,
    ) -> PyResult<isize> {
        let sub = Lent::to_read(sub)?;
        let memory = self.memory()?;
        let part = self.part(&memory, start, end);
        let (from, len) = sub.place();
        let steps = Steps::new(&memory, &part, len)?;
        // Otherwise there is nothing to look at.
        let own = match len <= part.len() {
            true => sub.copied_if_of_map(py)?,
            false => None,
        };
        let found = py.detach(|| {
            // SAFETY: the bytes are lent.
            let lent = unsafe { core::slice::from_raw_parts(from as *const u8, len) };
            let wanted = own.as_deref().unwrap_or(lent);
            match last {
                false => first(steps, part, wanted),
                true => self::last(steps, part, wanted),
            }
        });
        Ok(found.map_err(of_page)?.map_or(-1, |at| at as isize))
    }
}

/// Bytes of a part, in steps that overlap so far that the searched bytes are whole in one.
struct Steps<'a> {
    memory: &'a Memory,
    bytes: Vec<u8>,
}

impl<'a> Steps<'a> {
    /// The steps of a search in a part, for so many bytes.
    fn new(memory: &'a Memory, part: &Range<usize>, wanted: usize) -> PyResult<Self> {
        let most = match wanted <= part.len() {
            true => part.len().min(Self::of(wanted)),
            false => 0,
        };
        let bytes = room(most)?;
        Ok(Self { memory, bytes })
    }

    /// The bytes of a step.
    fn of(wanted: usize) -> usize {
        STEP.max(2 * wanted)
    }

    fn get(&mut self, part: Range<usize>) -> Result<&[u8], FaultError> {
        self.bytes.resize(part.len(), 0);
        let into = (self.bytes.as_mut_ptr() as usize, part.len());
        // SAFETY: bytes of our own.
        unsafe { self.memory.copy_out(part.start, into) }?;
        Ok(&self.bytes)
    }
}

fn first(
    mut steps: Steps<'_>,
    part: Range<usize>,
    wanted: &[u8],
) -> Result<Option<usize>, FaultError> {
    if wanted.is_empty() || part.is_empty() || part.len() < wanted.len() {
        return Ok((wanted.is_empty() && part.start <= part.end).then_some(part.start));
    }
    let finder = memmem::Finder::new(wanted);
    let mut at = part.start;
    while part.end - at >= wanted.len() {
        let end = part.end.min(at + Steps::of(wanted.len()));
        if let Some(found) = finder.find(steps.get(at..end)?) {
            return Ok(Some(at + found));
        }
        if end == part.end {
            break;
        }
        at = end - (wanted.len() - 1);
    }
    Ok(None)
}

fn last(
    mut steps: Steps<'_>,
    part: Range<usize>,
    wanted: &[u8],
) -> Result<Option<usize>, FaultError> {
    if wanted.is_empty() || part.is_empty() || part.len() < wanted.len() {
        return Ok((wanted.is_empty() && part.start <= part.end).then_some(part.end));
    }
    let finder = memmem::FinderRev::new(wanted);
    let mut end = part.end;
    while end - part.start >= wanted.len() {
        let at = part.start.max(end.saturating_sub(Steps::of(wanted.len())));
        if let Some(found) = finder.rfind(steps.get(at..end)?) {
            return Ok(Some(at + found));
        }
        if at == part.start {
            break;
        }
        end = at + (wanted.len() - 1);
    }
    Ok(None)
}

#[pymethods]
impl Mmap {
    /// The first offset of `sub`, or -1.
    #[pyo3(signature = (sub, start=None, end=None, /))]
    fn find(
        &self,
        py: Python<'_>,
        sub: &Bound<'_, PyAny>,
        start: Option<isize>,
        end: Option<isize>,
    ) -> PyResult<isize> {
        self.search(py, sub, (start, end), false)
    }

    /// The last offset of `sub`, or -1.
    #[pyo3(signature = (sub, start=None, end=None, /))]
    fn rfind(
        &self,
        py: Python<'_>,
        sub: &Bound<'_, PyAny>,
        start: Option<isize>,
        end: Option<isize>,
    ) -> PyResult<isize> {
        self.search(py, sub, (start, end), true)
    }
}
