//! System calls on memory that may not be resident: its pages are kept in memory for each call.

use super::{MmapMut, ServedBy};
use crate::FaultError;
use crate::file_map::{FilePin, populate_by_kernel};
use crate::kernel_copy;
use crate::private::HoldFor;
use crate::range::offsets;
use core::ops::{Range, RangeBounds};
use core::ptr::slice_from_raw_parts;
use std::io;

/// Bytes a call.
const STEP: usize = 256 << 10;
/// Bytes a call if no more can be kept, or if a page of them fails: the pages before that are transferred.
const SMALL_STEP: usize = softfault_engine::PAGE_SIZE;
/// Bytes of a file that are kept for a call that writes to them. Later bytes may not be in memory, and need not be read.
const WRITE_STEP: usize = 64 << 10;

impl MmapMut {
    /// Writes a range to `writer` (a file, a socket, a hasher).
    pub fn write_to(
        &self,
        range: impl RangeBounds<usize>,
        writer: &mut (impl io::Write + ?Sized),
    ) -> io::Result<u64> {
        let range = offsets(range, self.len);
        self.addresses(range.clone())?;
        let mut copy = Vec::new();
        let mut at = range.start;
        let mut steps = Steps::default();
        while at < range.end {
            self.start_reads(at, range.end);
            let kept = steps.keep(self, at..range.end, HoldFor::Reads)?;
            let part = kept.0.clone();
            if kept.is_kernels() {
                // From a copy, so that the writer touches no page that may go meanwhile.
                copy.resize(part.len(), 0);
                kept.copy_to(&mut copy)?;
                writer.write_all(&copy)?;
            } else {
                writer.write_all(&self[part.clone()])?;
            }
            at = part.end;
        }
        let bytes = range.len();
        self.note_call(range);
        Ok(bytes as u64)
    }

    /// Starts to read the next steps of a call that goes on to `end`, as far as there is room.
    fn start_reads(&self, at: usize, end: usize) {
        if end - at > STEP
            && let Ok(soon) = self.addresses(at..end.min(at + 4 * STEP))
        {
            self.will_need(soon);
        }
    }

    /// A call has brought a range in: calls that go through a file in order are read ahead of.
    fn note_call(&self, range: Range<usize>) {
        if let (Some(file), Ok(addresses)) = (self.file(), self.addresses(range)) {
            file.note_call(self.managed(), &addresses);
        }
    }

    /// Fills a range from `reader` (a file, a socket); returns the number of bytes
    /// read, which is smaller only if `reader` has ended.
    pub fn read_from(
        &mut self,
        range: impl RangeBounds<usize>,
        reader: &mut (impl io::Read + ?Sized),
    ) -> io::Result<u64> {
        let range = offsets(range, self.len);
        let mut stored = 0;
        // SAFETY: the map is borrowed for writing.
        unsafe { self.fill_from(range, reader, &mut stored) }?;
        Ok(stored)
    }

    /// As [`read_from`](Self::read_from), for a map to which other code has pointers. `stored` grows by the bytes that the map has
    /// got, also before an error: `reader` may have given some more.
    ///
    /// # Safety
    /// There is no other reference to the range. Code that reads or writes it meanwhile tolerates data races.
    pub(crate) unsafe fn fill_from(
        &self,
        range: Range<usize>,
        reader: &mut (impl io::Read + ?Sized),
        stored: &mut u64,
    ) -> io::Result<()> {
        self.addresses(range.clone())?;
        let mut copy = Vec::new();
        let mut at = range.start;
        let mut steps = Steps::default();
        while at < range.end {
            let kept = steps.keep(self, at..range.end, HoldFor::Writes)?;
            let part = kept.0.clone();
            if kept.is_kernels() {
                copy.resize(part.len(), 0);
                match reader.read(&mut copy) {
                    Ok(0) => break,
                    Ok(count) => {
                        let count = count.min(part.len());
                        // SAFETY: as many bytes of ours; the map's are the reader's, as the caller says.
                        unsafe { kept.copy_from(copy.as_ptr(), count) }?;
                        at += count;
                        *stored += count as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            let start = self.start + at;
            // SAFETY: within the map, whose bytes are the reader's as the caller says; the guard has it
            // only to let its pages go.
            let bytes = unsafe { core::slice::from_raw_parts_mut(start as *mut u8, part.len()) };
            match reader.read(bytes) {
                Ok(0) => break,
                Ok(count) => {
                    let count = count.min(part.len());
                    at += count;
                    *stored += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// As [`read_from`](Self::read_from), with fewer faults for a file that the engine serves: a page that is overwritten as a
    /// whole is not read first, and a page that is not in memory takes no fault. No page is kept while the call waits for `reader`.
    /// If a store would raise SIGBUS (a hole and a full disk, or no memory), this returns an error.
    pub fn write_from(
        &mut self,
        range: impl RangeBounds<usize>,
        reader: &mut (impl io::Read + ?Sized),
    ) -> io::Result<u64> {
        let range = offsets(range, self.len);
        if !matches!(self.served_by(), ServedBy::File(_)) {
            return self.read_from(range, reader);
        }
        self.addresses(range.clone())?;
        let mut buffer = vec![0; STEP.min(range.len())];
        let mut at = range.start;
        while at < range.end {
            // Up to where a step of the file ends, or the reader.
            let most = (STEP - at % STEP).min(range.end - at).min(buffer.len());
            let mut filled = 0;
            while filled < most {
                match reader.read(&mut buffer[filled..most]) {
                    Ok(0) => break,
                    Ok(count) => filled += count.min(most - filled),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.write_at(&buffer[..filled], at)?;
                        return Err(error);
                    }
                }
            }
            self.write_at(&buffer[..filled], at)?;
            at += filled;
            if filled < most {
                break;
            }
        }
        Ok((at - range.start) as u64)
    }

    /// Copies bytes from `offset` on into `buffer`; returns the number of bytes copied. Errors are
    /// values, not signals.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<usize, FaultError> {
        let count = buffer.len().min(self.len.saturating_sub(offset));
        let mut done = 0;
        while done < count {
            self.start_reads(offset + done, offset + count);
            let kept = KeptPart::new(self, offset + done..offset + count, HoldFor::Reads)?;
            let part = kept.0.len();
            kept.copy_to(&mut buffer[done..done + part])?;
            done += part;
        }
        self.note_call(offset..offset + count);
        Ok(count)
    }

    /// Copies `bytes` into the map at `offset`; returns the number of bytes that had room. If a store would raise
    /// SIGBUS (past the end of the file, a hole and a full disk, or no memory), this returns an error,
    /// and the bytes written before that point stay.
    pub fn write_at(&mut self, bytes: &[u8], offset: usize) -> Result<usize, FaultError> {
        // SAFETY: a slice's bytes can be read; the map is borrowed for writing.
        unsafe { self.copy_in((bytes.as_ptr(), bytes.len()), offset) }
    }

    /// As [`write_at`](Self::write_at), for bytes and for a map to which other code has pointers.
    ///
    /// # Safety
    /// The bytes are readable, and are not part of the map. There is no reference to the bytes that they replace, and code
    /// that reads or writes those meanwhile tolerates data races.
    pub(crate) unsafe fn copy_in(
        &self,
        (bytes, len): (*const u8, usize),
        offset: usize,
    ) -> Result<usize, FaultError> {
        let count = len.min(self.len.saturating_sub(offset));
        let mut done = 0;
        let (mut steps, mut copy) = (Steps::default(), Vec::new());
        while done < count {
            let left = slice_from_raw_parts(bytes.wrapping_add(done), (count - done).min(STEP));
            // SAFETY: within the bytes, which can be read, as the caller says.
            let whole = unsafe { self.write_whole(left, offset + done, &mut copy) };
            if whole > 0 {
                done += whole;
                continue;
            }
            let kept = steps.keep(self, offset + done..offset + count, HoldFor::Writes)?;
            let part = kept.0.len();
            // SAFETY: within the bytes, and the caller says that they and the map's may be used so.
            unsafe { kept.copy_from(bytes.add(done), part) }?;
            done += part;
        }
        Ok(count)
    }
}

impl MmapMut {
    /// Writes whole pages of a file that are not in memory; returns the number of bytes. `copy` has memory for that.
    ///
    /// # Safety
    /// The bytes are readable.
    unsafe fn write_whole(&self, bytes: *const [u8], offset: usize, copy: &mut Vec<u8>) -> usize {
        match self.served_by() {
            ServedBy::File(file) if !self.is_lost() => {
                // SAFETY: the caller vouches for it.
                unsafe { file.write_whole(self.start + offset, bytes, copy) }
            }
            _ => 0,
        }
    }
}

/// The steps of a call that goes on to the first page that cannot be had: the pages before it are handed on.
#[derive(Default)]
struct Steps {
    /// A page before this offset cannot be had. Until it shows which, each page comes alone.
    by_pages_until: usize,
}

impl Steps {
    fn keep<'a>(
        &mut self,
        map: &'a MmapMut,
        range: Range<usize>,
        accesses: HoldFor,
    ) -> Result<KeptPart<'a>, FaultError> {
        if range.start >= self.by_pages_until {
            match KeptPart::new(map, range.clone(), accesses) {
                Ok(kept) => return Ok(kept),
                Err(_) => self.by_pages_until = range.start + STEP,
            }
        }
        KeptPart::first(map, &range, SMALL_STEP, accesses)
    }
}

/// The first offsets of a range; their pages stay in memory while this lives.
struct KeptPart<'a>(Range<usize>, &'a MmapMut, Option<FilePin>);

impl<'a> KeptPart<'a> {
    fn new(map: &'a MmapMut, range: Range<usize>, accesses: HoldFor) -> Result<Self, FaultError> {
        let step = match map.served_by() {
            ServedBy::File(_) if accesses == HoldFor::Writes => WRITE_STEP,
            _ => STEP,
        };
        let kept = Self::first(map, &range, step, accesses);
        match kept {
            // Others have locked or pinned so much.
            Err(FaultError::NoMemory) => Self::first(map, &range, SMALL_STEP, accesses),
            kept => kept,
        }
    }

    fn first(
        map: &'a MmapMut,
        range: &Range<usize>,
        step: usize,
        accesses: HoldFor,
    ) -> Result<Self, FaultError> {
        // Not across steps: as few pages as there can be.
        let step = step - (map.start + range.start) % step;
        let part = range.start..range.end.min(range.start + step);
        let pin = map.hold_part(part.clone(), accesses)?;
        Ok(Self(part, map, pin))
    }

    /// True if the kernel serves the part: nothing keeps its pages.
    fn is_kernels(&self) -> bool {
        matches!(self.1.served_by(), ServedBy::Kernel)
    }

    /// Copies the part out, which has as many bytes.
    fn copy_to(&self, into: &mut [u8]) -> Result<(), FaultError> {
        assert_eq!(into.len(), self.0.len(), "the part has as many bytes");
        let from = self.1.start + self.0.start;
        if !self.is_kernels() {
            // By pointers: code that has pointers to the map may write to it meanwhile, which no reference allows.
            // SAFETY: within the map, whose pages are kept; the buffer is borrowed.
            unsafe { (from as *const u8).copy_to(into.as_mut_ptr(), into.len()) };
            return Ok(());
        }
        // SAFETY: within the map, which is borrowed, as the buffer is.
        unsafe { kernel_copy::read(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in: as many as the part has, or fewer.
    ///
    /// # Safety
    /// The bytes are readable, and are not part of the map. There is no reference to the part's bytes, and code that uses
    /// them meanwhile tolerates data races.
    unsafe fn copy_from(&self, bytes: *const u8, len: usize) -> Result<(), FaultError> {
        assert!(len <= self.0.len(), "the part has as many bytes");
        let to = self.1.start + self.0.start;
        if self.is_kernels() {
            // SAFETY: within the map; the caller vouches for the rest.
            return unsafe { kernel_copy::write(to, bytes, len) };
        }
        // SAFETY: the same; the guard has the map only to let its pages go.
        unsafe { (to as *mut u8).copy_from(bytes, len) };
        Ok(())
    }
}

impl MmapMut {
    /// Brings a part in, and keeps it until [`release_part`](Self::release_part) is called with the result. If it is kept for
    /// writes, a system call can write to the part.
    fn hold_part(
        &self,
        part: Range<usize>,
        accesses: HoldFor,
    ) -> Result<Option<FilePin>, FaultError> {
        let addresses = self.addresses(part)?;
        match self.served_by() {
            ServedBy::Private(private) => private.hold(self.managed(), addresses, accesses)?,
            ServedBy::File(file) => {
                let write = accesses != HoldFor::Reads;
                return file.hold(self.managed(), addresses, write).map(Some);
            }
            // Its own protection says whether it may be written to: a pin only reads it in.
            ServedBy::Kernel => populate_by_kernel(&addresses, accesses == HoldFor::Writes)?,
            ServedBy::Nobody => {}
        }
        Ok(None)
    }

    /// The same, for reads, and for writes where pages may be written to.
    pub(crate) fn hold_part_as_allowed(
        &self,
        part: Range<usize>,
    ) -> Result<Option<FilePin>, FaultError> {
        self.hold_part(part, HoldFor::Allowed)
    }

    /// Releases a part that [`hold_part`](Self::hold_part) has kept.
    pub(crate) fn release_part(&self, part: Range<usize>, pin: Option<FilePin>) {
        // The memory of a child of fork is not the parent's any more.
        let Ok(addresses) = self.addresses(part) else {
            return core::mem::forget(pin);
        };
        match (self.served_by(), pin) {
            (ServedBy::Private(private), _) => private.release(self.managed(), addresses),
            (ServedBy::File(file), Some(pin)) => file.file().unpin(addresses, pin),
            // In a child of fork the pin is its parent's.
            (_, pin) => core::mem::forget(pin),
        }
    }
}

impl Drop for KeptPart<'_> {
    fn drop(&mut self) {
        self.1.release_part(self.0.clone(), self.2.take());
    }
}
