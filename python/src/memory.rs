//! The memory of one map, served by the engine or the kernel. Everything here may wait for a read: it is called without the interpreter's
//! lock.

use crate::failure::handle_signals;
use crate::plain::Plain;
use core::ops::Range;
use softfault::{Advice, FaultError, MmapRaw, RemapOptions, UncheckedAdvice};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Instant;

/// Memory of a map.
pub(crate) enum Memory {
    /// By softfault: an engine, or the kernel where softfault leaves it to that.
    Served(Box<MmapRaw>),
    Plain(Plain),
}

/// For each range, that it is in memory, or why not.
pub(crate) type Answers = Vec<Result<(), FaultError>>;

impl Memory {
    /// Its first address.
    pub(crate) fn start(&self) -> usize {
        match self {
            Self::Served(map) => map.as_ptr() as usize,
            Self::Plain(map) => map.start(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Served(map) => map.len(),
            Self::Plain(map) => map.len(),
        }
    }

    /// The addresses that only it has, and those that have the same window of a file.
    pub(crate) fn window(&self) -> Range<usize> {
        match self {
            Self::Served(map) => map.window(),
            Self::Plain(map) => map.start()..map.start() + map.len().next_multiple_of(page_size()),
        }
    }

    /// True if an engine serves it.
    pub(crate) fn is_managed(&self) -> bool {
        matches!(self, Self::Served(map) if map.is_managed())
    }

    /// Copies bytes out; answers how many there were.
    ///
    /// # Safety
    /// The bytes at `into` can be written, are not the map's, and nobody else uses them meanwhile.
    pub(crate) unsafe fn copy_out(
        &self,
        offset: usize,
        (into, len): (usize, usize),
    ) -> Result<usize, FaultError> {
        match self {
            // SAFETY: the caller's.
            Self::Served(map) => unsafe { map.copy_out(offset, (into as *mut u8, len)) },
            Self::Plain(map) => {
                let count = len.min(map.len().saturating_sub(offset));
                let from = (map.start() + offset) as *const u8;
                // SAFETY: within the mapping, which lives as long as this is borrowed; the caller vouches for the rest.
                unsafe { core::ptr::copy_nonoverlapping(from, into as *mut u8, count) };
                Ok(count)
            }
        }
    }

    /// Copies rows out, one behind the other, each when it is in memory, while the others are being read. After an error the bytes
    /// are no rows.
    ///
    /// # Safety
    /// As of [`copy_out`](Self::copy_out), for as many bytes at `into` as the rows have.
    pub(crate) unsafe fn copy_out_many(
        &self,
        rows: &[Range<usize>],
        into: usize,
    ) -> Result<(), FaultError> {
        let row = rows.first().map_or(0, Range::len);
        let mut answers = match self {
            // SAFETY: the caller's.
            Self::Served(map) => unsafe {
                map.copy_out_many(rows, |place| (into + place * row) as *mut u8)
            },
            Self::Plain(_) => {
                let copy = |(row, at): (&Range<usize>, usize)| {
                    // An error is one here, and not SIGBUS at the copy.
                    self.fault_in(core::slice::from_ref(row), None).remove(0)?;
                    // SAFETY: the caller's.
                    unsafe { self.copy_out(row.start, (at, row.len())) }.map(drop)
                };
                let places = (into..).step_by(row.max(1));
                rows.iter().zip(places).map(copy).collect()
            }
        }
        .into_iter();
        answers.try_for_each(|answer| answer)
    }

    /// Copies bytes in; answers how many there was room for.
    ///
    /// # Safety
    /// The bytes at `from` can be read, and are not the map's. The map may be written to.
    pub(crate) unsafe fn copy_in(
        &self,
        offset: usize,
        (from, len): (usize, usize),
    ) -> Result<usize, FaultError> {
        match self {
            // SAFETY: the caller's; the interpreter has pointers to the map, and no references.
            Self::Served(map) => unsafe { map.copy_in(offset, (from as *const u8, len)) },
            Self::Plain(map) => {
                let count = len.min(map.len().saturating_sub(offset));
                let into = (map.start() + offset) as *mut u8;
                // SAFETY: within the mapping, which lives as long as this is borrowed; the caller vouches for the rest.
                unsafe { core::ptr::copy_nonoverlapping(from as *const u8, into, count) };
                Ok(count)
            }
        }
    }

    /// Writes a part to a file; answers how many bytes, which are fewer only with an error behind them.
    pub(crate) fn write_to(&self, part: Range<usize>, file: &File) -> (usize, io::Result<()>) {
        let mut counted = Counted(file, 0);
        let done = match self {
            // SAFETY: a file's, which hands the bytes to write(2).
            Self::Served(map) => unsafe { map.write_to(part, &mut counted) }.map(drop),
            Self::Plain(_) => self.write_plain(part, &mut counted),
        };
        (counted.1, done)
    }

    fn write_plain(&self, mut part: Range<usize>, writer: &mut impl Write) -> io::Result<()> {
        let mut bytes = vec![0; part.len().min(STEP)];
        while !part.is_empty() {
            let len = part.len().min(STEP);
            // SAFETY: our own bytes.
            unsafe { self.copy_out(part.start, (bytes.as_mut_ptr() as usize, len)) }?;
            writer.write_all(&bytes[..len])?;
            part.start += len;
        }
        Ok(())
    }

    /// Fills a part from a file; answers how many bytes it got.
    pub(crate) fn fill_from(&self, part: Range<usize>, file: &File) -> (usize, io::Result<()>) {
        let mut stored = 0;
        let mut file = WithHandlers(file);
        let done = match self {
            // SAFETY: the interpreter has pointers to the part, and no references.
            Self::Served(map) => unsafe { map.fill_from(part, &mut file, &mut stored) },
            Self::Plain(_) => self.fill_plain(part, &mut file, &mut stored),
        };
        (stored as usize, done)
    }

    fn fill_plain(
        &self,
        mut part: Range<usize>,
        reader: &mut impl Read,
        stored: &mut u64,
    ) -> io::Result<()> {
        let mut bytes = vec![0; part.len().min(STEP)];
        while !part.is_empty() {
            let len = part.len().min(STEP);
            let count = reader.read(&mut bytes[..len])?;
            if count == 0 {
                break;
            }
            // SAFETY: our own bytes; a caller that fills a map may write to it.
            unsafe { self.copy_in(part.start, (bytes.as_ptr() as usize, count)) }?;
            *stored += count as u64;
            part.start += count;
        }
        Ok(())
    }

    /// Writes the changes to the file, and waits until they are on the device.
    pub(crate) fn flush(&self, part: Range<usize>) -> io::Result<()> {
        match self {
            Self::Served(map) => map.flush_range(part.start, part.len()),
            Self::Plain(map) => map.flush(&part),
        }
    }

    /// madvise(2), by its numbers.
    pub(crate) fn advise(&self, part: Range<usize>, advice: i32) -> io::Result<()> {
        let map = match self {
            Self::Served(map) => map,
            Self::Plain(map) => return map.advise(&part, advice),
        };
        let (start, len) = (part.start, part.len());
        if let Some(advice) = UncheckedAdvice::of_number(advice) {
            // SAFETY: the interpreter has copies and pointers, and relies on no byte of a map that is given up.
            return unsafe { map.unchecked_advise_range(advice, start, len) };
        }
        let advice = Advice::of_number(advice);
        let advice = advice.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        map.advise_range(advice, start, len)
    }

    /// Starts to read a part.
    pub(crate) fn prefetch(&self, part: Range<usize>) -> io::Result<()> {
        match self {
            Self::Served(map) => Ok(map.prefetch(part)?),
            Self::Plain(map) => map.advise(&whole_pages(part), libc::MADV_WILLNEED),
        }
    }

    /// Brings a part in; as writes would, if it is to be written to.
    pub(crate) fn populate(&self, part: Range<usize>, write: bool) -> io::Result<()> {
        match self {
            Self::Served(map) => map.populate(part, write),
            Self::Plain(map) => map.populate(&whole_pages(part), write),
        }
    }

    /// Brings many ranges in, until a deadline; an answer for each.
    pub(crate) fn fault_in(&self, ranges: &[Range<usize>], until: Option<Instant>) -> Answers {
        match self {
            Self::Served(map) => {
                let many = map.fault_in_many(ranges);
                match until {
                    Some(until) => many.until(until).wait(),
                    None => many.wait(),
                }
            }
            Self::Plain(_) => {
                let each = ranges.iter().map(|range| {
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return Err(FaultError::TimedOut);
                    }
                    let came = self.populate(range.clone(), false);
                    came.map_err(|error| FaultError::Io(error.raw_os_error().unwrap_or(libc::EIO)))
                });
                each.collect()
            }
        }
    }

    /// mlock(2) or munlock(2) of all of it.
    pub(crate) fn lock(&self, locked: bool) -> io::Result<()> {
        match self {
            Self::Served(map) if locked => map.lock(),
            Self::Served(map) => map.unlock(),
            Self::Plain(map) => map.lock(locked),
        }
    }

    /// Lets the map have `len` bytes, and its file, if it has one, end there. `is_shared` says whether it writes to the file.
    pub(crate) fn resize(
        &mut self,
        file: Option<(&File, u64)>,
        is_shared: bool,
        len: usize,
    ) -> io::Result<()> {
        match (self, file) {
            (Self::Served(map), Some((file, _))) if is_shared => map.set_len(file, len),
            (Self::Served(map), file) => {
                if let Some((file, offset)) = file {
                    // As the standard library, whose map may write to the file or not.
                    map.engine().truncate(file, offset + len as u64)?;
                }
                // SAFETY: nobody has an address of the map: this is borrowed for writing.
                unsafe { map.remap(len, RemapOptions::new().may_move(true)) }
            }
            (Self::Plain(map), None) => map.resize(len),
            (Self::Plain(map), Some((file, offset))) => {
                file.set_len(offset + len as u64)?;
                map.resize(len)
            }
        }
    }
}

/// Copies bytes of one map into another, or to another place of the same one. Both may have to be read, and a page of either that cannot be
/// had is an error. The second map may be written to.
pub(crate) fn copy_across(
    (from, source): (&Memory, usize),
    (into, target): (&Memory, usize),
    len: usize,
) -> Result<(), FaultError> {
    let mut bytes = vec![0; len.min(STEP)];
    // The overwritten bytes were read before, if both overlap.
    let forward = into.start() + target <= from.start() + source;
    let mut done = 0;
    while done < len {
        let step = (len - done).min(STEP);
        let at = if forward { done } else { len - done - step };
        // SAFETY: bytes of our own.
        unsafe { from.copy_out(source + at, (bytes.as_mut_ptr() as usize, step)) }?;
        // SAFETY: bytes of our own; the caller vouches for the map.
        unsafe { into.copy_in(target + at, (bytes.as_ptr() as usize, step)) }?;
        done += step;
    }
    Ok(())
}

/// Bytes a step where a copy goes between.
pub(crate) const STEP: usize = 256 << 10;

/// The machine's pages.
pub(crate) fn page_size() -> usize {
    // SAFETY: only asks.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Offsets of the pages that have a part.
fn whole_pages(part: Range<usize>) -> Range<usize> {
    let page = page_size();
    part.start / page * page..part.end.next_multiple_of(page)
}

/// The bytes that went through, also where an error came behind them.
struct Counted<'a>(&'a File, usize);

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = again(|| self.0.write(bytes))?;
        self.1 += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is read while Python's handlers of signals run.
struct WithHandlers<'a>(&'a File);

impl Read for WithHandlers<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        again(|| self.0.read(bytes))
    }
}

/// Makes a system call as often as a signal interrupts it. Python's handlers run before it is made again.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => handle_signals()?,
            done => return done,
        }
    }
}
