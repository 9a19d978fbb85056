//! What borders to other languages need of a map: they have addresses and no borrows, and say what a borrow would.

use super::{MmapRaw, Raw};
use crate::fault_in::{Awaited, FaultInMany};
use crate::{Engine, FaultError, many_maps};
use core::ops::Range;
use softfault_engine::mm::Protection;
use std::fs::File;
use std::io;
use std::time::Instant;

impl MmapRaw {
    /// The engine beside which it was made.
    pub fn engine(&self) -> &Engine {
        either!(&self.0, map => map.engine())
    }

    /// True if the engine serves it, false if the kernel does.
    pub fn is_managed(&self) -> bool {
        either!(&self.0, map => map.is_managed())
    }

    /// The pages that no map has but this one, and those that have the same file's window.
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

    /// The same of many maps by one call, and each engine's by one pass of reads; an answer for each range of each map.
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

    /// Copies bytes of the map out; returns how many there were.
    ///
    /// # Safety
    /// The bytes can be written, are not the map's, and are used by nobody else meanwhile. A part of the map that others
    /// write to meanwhile is copied as it comes.
    pub unsafe fn copy_out(
        &self,
        offset: usize,
        (into, len): (*mut u8, usize),
    ) -> Result<usize, FaultError> {
        // SAFETY: as the caller says; whoever lends memory by its address does not ask what is in it.
        let into = unsafe { core::slice::from_raw_parts_mut(into, len) };
        either!(&self.0, map => map.read_at(into, offset))
    }

    /// Copies bytes into the map; returns how many there was room for. An error where the map may only be read.
    ///
    /// # Safety
    /// The bytes can be read, and are not the map's. Nobody has a reference to those that they replace.
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
    pub fn write_to(
        &self,
        part: Range<usize>,
        writer: &mut (impl io::Write + ?Sized),
    ) -> io::Result<u64> {
        either!(&self.0, map => map.write_to(part, writer))
    }

    /// Fills a part from `reader`; see [`MmapMut::read_from`](crate::MmapMut::read_from). An error where the map may
    /// only be read.
    ///
    /// # Safety
    /// Nobody has a reference to the part.
    pub unsafe fn fill_from(
        &self,
        part: Range<usize>,
        reader: &mut (impl io::Read + ?Sized),
    ) -> io::Result<u64> {
        match &self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            // SAFETY: the caller vouches for it.
            Raw::Write(map) => unsafe { map.fill_from(part, reader) },
        }
    }

    /// Lets a map that writes to `file` have `len` bytes, and the file end where the map does; see
    /// [`MmapMut::set_len`](crate::MmapMut::set_len).
    pub fn set_len(&mut self, file: &File, len: usize) -> io::Result<()> {
        match &mut self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            Raw::Write(map) => map.set_len(file, len),
        }
    }

    /// `mprotect(2)` of a private map, or of one that the kernel serves: whether it may be written to.
    #[doc(hidden)]
    pub fn protect(&mut self, writable: bool) -> io::Result<()> {
        match &mut self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            Raw::Write(map) => map.protect(protection(writable)),
        }
    }

    /// The same of the pages of a part, while other threads use the map. One thread at a time does this.
    #[doc(hidden)]
    pub fn protect_part(&self, part: Range<usize>, writable: bool) -> io::Result<()> {
        match &self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            Raw::Write(map) => map.protect_part(part, protection(writable)),
        }
    }

    /// A map of `len` bytes that begins with those of a part of this one, which begins at a page: a private map over the engine.
    /// It may be written to. Nobody writes to the part meanwhile.
    #[doc(hidden)]
    pub fn part_anew(&self, part: Range<usize>, len: usize) -> io::Result<Self> {
        match &self.0 {
            Raw::Read(_) => Err(io::ErrorKind::Unsupported.into()),
            Raw::Write(map) => map.part_anew(part, len).map(Self::from),
        }
    }

    /// True if it is private memory of the engine's whose untouched pages are zeros.
    #[doc(hidden)]
    pub fn begins_as_zeros(&self) -> bool {
        let private = either!(&self.0, map => map.private());
        private.is_some_and(|private| private.begins_as_zeros())
    }

    /// Lets the pages of a part of memory that begins as zeros be zeros again, whether
    /// [`unmap_part`](Self::unmap_part) has taken them away or not. One thread at a time does this. After an error some may be.
    ///
    /// # Safety
    /// Nobody relies on what is there, and none of it is kept.
    #[doc(hidden)]
    pub unsafe fn renew_part(&self, part: Range<usize>, writable: bool) -> io::Result<()> {
        match &self.0 {
            Raw::Read(_) => Err(FaultError::ReadOnly.into()),
            // SAFETY: the caller vouches for it.
            Raw::Write(map) => unsafe { map.renew_part(part, protection(writable)) },
        }
    }

    /// Gives back the pages of a part that nobody uses any more. Its addresses stay the map's; a touch is a signal where
    /// the memory was this map's own, and reads a file's page again where the window shows it.
    ///
    /// # Safety
    /// Nobody looks at the part any more, and none of it is kept.
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
