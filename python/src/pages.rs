//! Many ranges brought in by one call, and rows copied out: without the interpreter's lock, with many reads in flight.

use crate::failure::of_page;
use crate::held::Held;
use crate::lent::{Lent, room};
use crate::maps;
use crate::memory::{Memory, copy_across};
use core::ops::Range;
use core::time::Duration;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use softfault::FaultError;
use std::time::Instant;

/// When a number of seconds from now is over.
pub(crate) fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout.filter(|&seconds| seconds != f64::INFINITY) else {
        return Ok(None);
    };
    // Not by max(), whose answer for NaN is 0.
    let seconds = if seconds < 0.0 { 0.0 } else { seconds };
    let wait = Duration::try_from_secs_f64(seconds);
    let wait =
        wait.map_err(|_| PyValueError::new_err("the timeout is not a valid number of seconds"))?;
    let until = Instant::now().checked_add(wait);
    until
        .map(Some)
        .ok_or_else(|| PyOverflowError::new_err("the timeout is too large"))
}

/// True if all of some addresses are one map's.
#[pyfunction]
pub(crate) fn is_served(start: usize, len: usize) -> bool {
    let end = start.checked_add(len);
    end.is_some_and(|end| maps::find(start..end).is_some())
}

/// A buffer's address and its bytes.
#[pyfunction]
pub(crate) fn place_of(buffer: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    Ok(Lent::in_any_order(buffer)?.place())
}

/// Brings ranges of addresses in, which their buffers keep mapped; those that are of no map are in memory as they are.
#[pyfunction]
pub(crate) fn bring_in(
    py: Python<'_>,
    ranges: Vec<(usize, usize)>,
    timeout: Option<f64>,
) -> PyResult<()> {
    let until = deadline(timeout)?;
    let mut maps: Vec<(Held, Vec<Range<usize>>)> = Vec::new();
    for (start, len) in ranges {
        let Some((memory, offsets)) = maps::find(start..start.saturating_add(len)) else {
            continue;
        };
        // Most are of the same map as the one before.
        let known = maps.iter_mut().rev();
        match known.into_iter().find(|(map, _)| map.is(&memory)) {
            Some((_, ranges)) => ranges.push(offsets),
            None => maps.push((memory, vec![offsets])),
        }
    }
    for (memory, ranges) in maps {
        all_in(py, &memory, ranges, until)?;
    }
    Ok(())
}

/// Bytes that are brought in without a look at Python's signals: a part of a second.
const UNINTERRUPTED: usize = 64 << 20;

/// Bytes of rows that are read at once where they go to another map, by way of our own memory.
const ACROSS: usize = 4 << 20;

/// Brings ranges of a map in; an exception for the first range that cannot be had.
pub(crate) fn all_in(
    py: Python<'_>,
    memory: &Memory,
    ranges: Vec<Range<usize>>,
    until: Option<Instant>,
) -> PyResult<()> {
    let mut ranges = ranges.into_iter();
    let mut next = ranges.next();
    while next.is_some() {
        let (mut some, mut room) = (Vec::new(), UNINTERRUPTED);
        while room > 0
            && let Some(range) = next.take()
        {
            let end = range.end.min(range.start.saturating_add(room));
            // A range of no bytes has a lookup's price.
            room -= (end - range.start).clamp(1, room);
            some.push(range.start..end);
            next = match end < range.end {
                true => Some(end..range.end),
                false => ranges.next(),
            };
        }
        let mut answers = py.detach(|| memory.fault_in(&some, until)).into_iter();
        answers.try_for_each(|answer| answer.map_err(of_page))?;
        py.check_signals()?;
    }
    Ok(())
}

/// Copies rows of a map to `out`, one behind the other. `rows` has the first one's address, the stride, a row's bytes, and
/// how many there are. Copied are those at `start + index * stride` for each of
/// `indices` (signed, 8 bytes each); a negative one counts from their end.
#[pyfunction]
pub(crate) fn take_rows(
    py: Python<'_>,
    rows: (usize, isize, usize, usize),
    indices: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (start, stride, row, count) = rows;
    let (indices, out) = (Lent::to_read(indices)?, Lent::to_write(out)?);
    let (mut indices_at, indices_len) = indices.place();
    let (out_at, out_len) = out.place();
    let wanted = indices_len / 8;
    if wanted.checked_mul(row) != Some(out_len) {
        return Err(PyValueError::new_err(format!(
            "out has {out_len} bytes, but {wanted} rows of {row} bytes were requested"
        )));
    }
    if row == 0 || wanted == 0 {
        return Ok(());
    }
    if count == 0 {
        return Err(PyIndexError::new_err("there are no rows to take"));
    }
    let (first, last) = ends(start, stride, row, count)?;
    let found = maps::find(first..last);
    let (memory, all) =
        found.ok_or_else(|| PyValueError::new_err("the rows are not in a map of softfault"))?;
    let target = maps::of_buffer((out_at, out_len))?;
    if target.as_ref().is_some_and(|(map, _)| map.is(&memory)) {
        return Err(PyValueError::new_err(
            "out is in the map from which rows are taken: use another array",
        ));
    }
    let own_indices = indices.copied_if_of_map(py)?;
    if let Some(own) = &own_indices {
        indices_at = own.as_ptr() as usize;
    }
    let base = all.start as isize + (start as isize - first as isize);
    let index_at = |place: usize| {
        // SAFETY: within the indices, which are lent or our own, and of any alignment.
        let index = unsafe { (indices_at as *const i64).add(place).read_unaligned() };
        row_of(index, count).ok_or(NotTaken::Index(index))
    };
    // Each row has some bookkeeping, and the price of a pin.
    let most = if target.is_some() {
        ACROSS
    } else {
        UNINTERRUPTED
    };
    let uninterrupted = (most / row).clamp(1, 1 << 14);
    // Rows on their way to another map.
    let mut between = match target {
        Some(_) if row <= ACROSS => room(row * uninterrupted.min(wanted))?,
        _ => Vec::<u8>::new(),
    };
    let mut ranges = Vec::with_capacity(uninterrupted.min(wanted));
    for start in (0..wanted).step_by(uninterrupted) {
        let end = wanted.min(start + uninterrupted);
        let taken = py.detach(|| {
            ranges.clear();
            for place in start..end {
                let offset = (base + index_at(place)? as isize * stride) as usize;
                ranges.push(offset..offset + row);
            }
            let (at, len) = (start * row, (end - start) * row);
            let Some((other, part)) = &target else {
                // SAFETY: within `out`, which is lent to be written to, and is no map's.
                let taken = unsafe { memory.copy_out_many(&ranges, out_at + at) };
                return taken.map_err(NotTaken::Page);
            };
            if row > ACROSS {
                let from = ranges[0].start;
                return copy_across((&memory, from), (other, part.start + at), row)
                    .map_err(NotTaken::Page);
            }
            between.resize(len, 0);
            let own = between.as_mut_ptr() as usize;
            // SAFETY: bytes of our own, as many as the rows have.
            unsafe { memory.copy_out_many(&ranges, own) }.map_err(NotTaken::Page)?;
            // SAFETY: bytes of our own; the other map was lent to be written to.
            let put = unsafe { other.copy_in(part.start + at, (own, len)) };
            put.map(drop).map_err(NotTaken::Page)
        });
        taken.map_err(|why| match why {
            NotTaken::Page(error) => of_page(error),
            NotTaken::Index(index) => PyIndexError::new_err(format!(
                "index {index} is out of bounds for axis 0 with size {count}"
            )),
        })?;
        py.check_signals()?;
    }
    Ok(())
}

/// Why rows were not taken.
enum NotTaken {
    Index(i64),
    Page(FaultError),
}

fn row_of(index: i64, count: usize) -> Option<usize> {
    let index = match index {
        0.. => usize::try_from(index).ok(),
        _ => count.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    };
    index.filter(|&index| index < count)
}

/// The first address of all rows, and that behind the last.
fn ends(start: usize, stride: isize, row: usize, count: usize) -> PyResult<(usize, usize)> {
    let far = stride.checked_mul(count as isize - 1);
    let last = far.and_then(|far| start.checked_add_signed(far));
    let ends = last.and_then(|last| Some((start.min(last), start.max(last).checked_add(row)?)));
    ends.ok_or_else(|| PyValueError::new_err("the rows do not fit in the address space"))
}
