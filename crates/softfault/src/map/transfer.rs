//! Copies out, and system calls on memory that may not be resident: errors are values.

use super::{Mmap, Pinned};
use crate::FaultError;
use crate::kernel_copy;
use core::ops::{Range, RangeBounds};
use softfault_engine::PAGE_SIZE;
use std::io;

/// Bytes to pin at a time.
const STEP: usize = 1 << 20;
/// The times that a page of private memory is brought in, until it stays for as long as a copy takes.
const TRIES: u32 = 100;

impl Mmap {
    /// Copies bytes from `offset` on into `buffer`; returns the number of bytes copied, which is smaller at the end of the map.
    /// For buffers of system calls, and for errors as values: a file that has become shorter is one, whoever serves the map.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<usize, FaultError> {
        let count = buffer.len().min(self.len.saturating_sub(offset));
        let mut done = 0;
        while done < count {
            let end = count.min(done + STEP);
            self.start_reads(offset + done, offset + count);
            done += self.copy_first(&mut buffer[done..end], offset + done)?;
        }
        self.note_call(offset..offset + count);
        Ok(count)
    }

    /// Starts to read the next steps of a call that goes on to `end`, as far as there is room.
    fn start_reads(&self, at: usize, end: usize) {
        if end - at > STEP {
            // Those that cannot be started are read when they come.
            let _ = self.prefetch(at..end.min(at + 4 * STEP));
        }
    }

    /// A call has brought a range in: calls that go through a file in order are read ahead of.
    pub(super) fn note_call(&self, range: Range<usize>) {
        if let (Some(file), Ok(addresses)) = (self.file(), self.addresses(range)) {
            file.note_call(self.managed(), &addresses);
        }
    }

    /// Writes a range to `writer` (a file, a socket, a hasher). At an error `writer` has the pages before it.
    pub fn write_to(
        &self,
        range: impl RangeBounds<usize>,
        writer: &mut (impl io::Write + ?Sized),
    ) -> io::Result<u64> {
        let range = self.range_of(range);
        self.addresses(range.clone())?;
        let mut copy = Vec::new();
        let (mut at, mut by_pages_until) = (range.start, range.start);
        while at < range.end {
            let by_pages = at < by_pages_until;
            let step = match by_pages {
                true => PAGE_SIZE - (self.start + at) % PAGE_SIZE,
                false => STEP,
            };
            let step = step.min(range.end - at);
            if !by_pages {
                self.start_reads(at, range.end);
            }
            match Pinned::new(self, at..at + step) {
                Ok(pinned) if !pinned.is_kernels() => {
                    writer.write_all(&pinned)?;
                    at += step;
                }
                // From a copy, so that the writer touches no page that may go meanwhile.
                Ok(_) | Err(FaultError::NoMemory) => {
                    copy.resize(step, 0);
                    match self.copy_first(&mut copy, at) {
                        Ok(copied) => {
                            writer.write_all(&copy[..copied])?;
                            at += copied;
                        }
                        Err(error) if by_pages => return Err(error.into()),
                        Err(_) => by_pages_until = at + step,
                    }
                }
                Err(error) if by_pages => return Err(error.into()),
                // The pages before the one that fails are written.
                Err(_) => by_pages_until = at + step,
            }
        }
        let bytes = range.len();
        self.note_call(range);
        Ok(bytes as u64)
    }

    /// Copies the first bytes from `at` on: all that have room in `into`, or, if so many cannot be pinned because other pins hold
    /// too much, those of a page. Returns their number.
    fn copy_first(&self, into: &mut [u8], at: usize) -> Result<usize, FaultError> {
        match Pinned::new(self, at..at + into.len()) {
            Ok(pinned) => pinned.copy_to(into).map(|()| into.len()),
            Err(FaultError::NoMemory) => {
                // Not across pages: no more is held than a fault in progress holds.
                let count = into.len().min(PAGE_SIZE - (self.start + at) % PAGE_SIZE);
                self.copy_of_page(&mut into[..count], at).map(|()| count)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies bytes of one page, which need not be counted as pinned.
    fn copy_of_page(&self, into: &mut [u8], at: usize) -> Result<(), FaultError> {
        let range = at..at + into.len();
        let Some(private) = self.private() else {
            return Pinned::uncounted(self, range)?.copy_to(into);
        };
        // Nothing keeps the page, and it may go to swap before it is copied: the kernel copies, and says if it was gone.
        let addresses = self.addresses(range)?;
        for _ in 0..TRIES {
            private.populate(self.managed(), addresses.clone(), false)?;
            // SAFETY: within the map; the kernel touches the page as a load would, and reports it if it is missing.
            let copied =
                unsafe { kernel_copy::read(addresses.start, into.as_mut_ptr(), into.len()) };
            if copied.is_ok() {
                return Ok(());
            }
        }
        Err(FaultError::NoMemory)
    }
}
