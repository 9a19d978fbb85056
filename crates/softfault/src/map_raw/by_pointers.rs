//! Methods for bindings to other languages. They take addresses and no borrows: the caller promises the guarantees of a borrow.

use super::{MmapRaw, Raw};
use crate::fault_in::{Awaited, FaultInMany};
use crate::file_map::populate_by_kernel;
use crate::{Advice, Engine, FaultError, many_maps};
use core::ops::Range;
use softfault_engine::mm::Protection;
use std::fs::File;
use std::io;
use std::time::Instant;

impl MmapRaw {
    /// The engine over which the map was made.
    pub fn engine(&self) -> &Engine {
        either!(&self.0, map => map.engine())
    }

    /// True if the engine serves it, false if the kernel does.
    pub fn is_managed(&self) -> bool {
        either!(&self.0, map => map.is_managed())
    }

    /// Bytes of a page of the map: a part that is unmapped has whole ones.
    #[doc(hidden)]
    pub fn page_size(&self) -> usize {
        either!(&self.0, map => map.page_size())
    }

    /// The pages that belong only to this map, and to other maps of the same file's window.
    #[doc(hidden)]
    pub fn window(&self) -> Range<usize> {
        either!(&self.0, map => map.window_pages())
    }

    pub(super) fn addresses(&self, part: Range<usize>) -> Result<Range<usize>, FaultError> {
        either!(&self.0, map => map.addresses(part))
    }

    /// See [`Mmap::fault_in_many`](crate::Mmap::fault_in_many).
    pub fn fault_in_many(&self, ranges: &[Range<usize>]) -> FaultInMany<'_> {
        either!(&self.0, map => map.fault_in_many(ranges))
    }

    /// As [`fault_in_many`](Self::fault_in_many), for many maps in one call. The reads of all maps of an engine are in flight
    /// together. Returns a result for each range of each map.
    #[doc(hidden)]
    pub fn fault_in_all(
        asked: &[(&Self, &[Range<usize>])],
        until: Option<Instant>,
    ) -> Vec<Vec<Result<(), FaultError>>> {
        let asked = asked.iter().map(|&(map, ranges)| {
            let map: &dyn Awaited = either!(&map.0, map => map);
            (map, ranges)
        });
        many_maps::wait(&asked.collect::<Vec<_>>(), until)
    }

    /// Brings a part in, as reads would, or as writes would. The error of a page is the same, whoever serves the map: of a map of the
    /// kernel's this is not `madvise(2)`, which tells a failed read by EFAULT, and not every kernel and mapping has it.
    #[doc(hidden)]
    pub fn populate(&self, part: Range<usize>, write: bool) -> io::Result<()> {
        if write && matches!(self.0, Raw::Read(_)) {
            return Err(FaultError::ReadOnly.into());
        }
        if !self.is_managed() {
            return Ok(populate_by_kernel(&self.addresses(part)?, write)?);
        }
        let advice = match write {
            true => Advice::PopulateWrite,
            false => Advice::PopulateRead,
        };
        self.advise_range(advice, part.start, part.len())
    }

    /// See [`Mmap::prefetch`](crate::Mmap::prefetch).
    pub fn prefetch(&self, part: Range<usize>) -> Result<(), FaultError> {
        match &self.0 {
            Raw::Read(map) => map.prefetch(part),
            Raw::Write(map) => {
                map.will_need(map.addresses(part)?);
                Ok(())
            }
        }
    }

    /// Copies bytes of the map out; returns the number of bytes copied.
    ///
    /// # Safety
    /// The target bytes are writable, are not part of the map, and nothing else uses them meanwhile. If other threads
    /// write to the map meanwhile, the copy has old or new bytes.
    pub unsafe fn copy_out(
        &self,
        offset: usize,
        (into, len): (*mut u8, usize),
    ) -> Result<usize, FaultError> {
        // SAFETY: as the caller says; the caller does not rely on the old bytes of memory that it lends by its address.
        let into = unsafe { core::slice::from_raw_parts_mut(into, len) };
        either!(&self.0, map => map.read_at(into, offset))
    }

    /// Copies ranges out, each when it is in memory, while the others are being read: `at` says where the bytes of each go. Returns
    /// the result for each range.
    ///
    /// # Safety
    /// The target bytes of each range are writable, are not part of the map, and nothing else uses them meanwhile.
    #[doc(hidden)]
    pub unsafe fn copy_out_many(
        &self,
        ranges: &[Range<usize>],
        at: impl Fn(usize) -> *mut u8,
    ) -> Vec<Result<(), FaultError>> {
        let mut failed = Vec::new();
        let mut copy = |place: usize| {
            let range = &ranges[place];
            // SAFETY: as the caller says. No lock is held, and a page that was evicted meanwhile is read again.
            let copied = unsafe { self.copy_out(range.start, (at(place), range.len())) };
            failed.extend(copied.err().map(|error| (place, error)));
        };
        let many = either!(&self.0, map => map.fault_in_many(ranges));
        let mut answers = many.wait_each(&mut copy);
        for (place, error) in failed {
            answers[place] = Err(error);
        }
        answers
    }

    /// Copies bytes into the map; returns the number of bytes that had room. An error if the map is read-only.
    ///
    /// # Safety
    /// The bytes are readable, and are not part of the map. There is no reference to the bytes that they replace.
    pub unsafe fn copy_in(
        &self,
        offset: usize,
        bytes: (*const u8, usize),
    ) -> Result<usize, FaultError> {
        match &self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly),
            // SAFETY: the caller vouches for it.
            Raw::Write(map) => unsafe { map.copy_in(bytes, offset) },
        }
    }

    /// Writes a part to `writer`; see [`Mmap::write_to`](crate::Mmap::write_to).
    ///
    /// # Safety
    /// `writer` gets the bytes of the map itself. Nothing changes them meanwhile, or the writer only hands them to a system call, which
    /// copies what it finds.
    pub unsafe fn write_to(
        &self,
        part: Range<usize>,
        writer: &mut (impl io::Write + ?Sized),
    ) -> io::Result<u64> {
        either!(&self.0, map => map.write_to(part, writer))
    }

    /// Fills a part from `reader`; see [`MmapMut::read_from`](crate::MmapMut::read_from). `stored` grows by the bytes that the
    /// map has got, also before an error: `reader` may have given some more. An error if the map is read-only.
    ///
    /// # Safety
    /// There is no reference to the part.
    pub unsafe fn fill_from(
        &self,
        part: Range<usize>,
        reader: &mut (impl io::Read + ?Sized),
        stored: &mut u64,
    ) -> io::Result<()> {
        match &self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            // SAFETY: the caller vouches for it.
            Raw::Write(map) => unsafe { map.fill_from(part, reader, stored) },
        }
    }

    /// Changes the length of a map that writes to `file`, and of the file; see
    /// [`MmapMut::set_len`](crate::MmapMut::set_len).
    pub fn set_len(&mut self, file: &File, len: usize) -> io::Result<()> {
        match &mut self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            Raw::Write(map) => map.set_len(file, len),
        }
    }

    /// The bytes that a map which only reads can grow to, if its file's end is a limit: then calls reach only as far, and a
    /// touch to the end of the page.
    #[doc(hidden)]
    pub fn longest(&self) -> Option<usize> {
        match &self.0 {
            Raw::Read(map) => map.longest(),
            Raw::Write(_) => None,
        }
    }

    /// `mprotect(2)` of a private map, or of one that the kernel serves: makes it writable or read-only.
    #[doc(hidden)]
    pub fn protect(&mut self, writable: bool) -> io::Result<()> {
        match &mut self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            Raw::Write(map) => map.protect(protection(writable)),
        }
    }

    /// As [`protect`](Self::protect), for the pages of a part, while other threads use the map. Only one thread at a time may call this.
    #[doc(hidden)]
    pub fn protect_part(&self, part: Range<usize>, writable: bool) -> io::Result<()> {
        match &self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            Raw::Write(map) => map.protect_part(part, protection(writable)),
        }
    }

    /// A map of `len` bytes that begins with the bytes of a part of this map. The part starts at a page, and this map is a
    /// private map over the engine. The new map is writable. No thread may write to the part meanwhile.
    #[doc(hidden)]
    pub fn copy_part_to_new_map(&self, part: Range<usize>, len: usize) -> io::Result<Self> {
        match &self.0 {
            Raw::Read(_) => Err(io::ErrorKind::Unsupported.into()),
            Raw::Write(map) => map.copy_part_to_new_map(part, len).map(Self::from),
        }
    }

    /// True if the map is private memory of the engine, and its untouched pages are zeros.
    #[doc(hidden)]
    pub fn is_zero_filled(&self) -> bool {
        let private = either!(&self.0, map => map.private());
        private.is_some_and(|private| private.is_zero_filled())
    }

    /// Makes the pages of a part zeros again, whether [`unmap_part`](Self::unmap_part) has unmapped them or not. For memory
    /// that begins as zeros. Only one thread at a time may call this. After an error some of the pages may be zeros.
    ///
    /// # Safety
    /// Nothing relies on the part's bytes, and none of its pages is kept.
    #[doc(hidden)]
    pub unsafe fn zero_part(&self, part: Range<usize>, writable: bool) -> io::Result<()> {
        match &self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            // SAFETY: the caller vouches for it.
            Raw::Write(map) => unsafe { map.zero_part(part, protection(writable)) },
        }
    }

    /// Writes the dirty pages of a part to the file, if the engine serves it. Does not wait for the device; the error of a failed
    /// write is told by the next flush.
    #[doc(hidden)]
    pub fn write_back(&self, part: Range<usize>) {
        let file = either!(&self.0, map => map.file());
        if let (Some(file), Ok(addresses)) = (file, self.addresses(part)) {
            file.write_back(addresses);
        }
    }

    /// Frees the pages of a part that is no longer used. Its addresses stay reserved for the map. A touch of them raises a
    /// signal if the memory was this map's own, and reads the file's page again if the window shows it.
    ///
    /// # Safety
    /// Nothing uses the part any more, and none of its pages is kept.
    #[doc(hidden)]
    pub unsafe fn unmap_part(&self, part: Range<usize>) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        either!(&self.0, map => unsafe { map.give_up_part(part) })
    }
}

fn protection(writable: bool) -> Protection {
    match writable {
        true => Protection::ReadWrite,
        false => Protection::Read,
    }
}
