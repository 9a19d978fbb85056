//! A file that a map writes to over an engine, as [`MmapMut`](crate::MmapMut) has it.
//!
//! In a child of fork, of its parent's, the kernel has mapped the file in the window's place
//! ([`inherited`](crate::files)), and does the calls: only those are for it that say so.

use crate::access_path::AccessPath;
use crate::advice::{Advice, UncheckedAdvice};
use crate::error::{self, FaultError};
use crate::file_map::{FileMap, FilePin};
use crate::files::{self, Files, OpenedWindow};
use crate::managed::Managed;
use crate::range::whole_pages;
use crate::store::FileWrites;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A part of a file that may be written to.
pub(crate) struct WritableFile {
    file: FileMap,
    writes: Arc<FileWrites>,
    /// The addresses that the map has.
    part: Range<usize>,
    /// Failures of write-back of which its flushes know.
    seen: Mutex<u32>,
    /// All of it, if it is locked.
    locked: Mutex<Option<FilePin>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WritableFile {
    /// `len` bytes of a file that has been opened for it, from one on.
    pub(crate) fn new(
        (managed, files): (&Managed, &Files),
        mut opened: OpenedWindow,
        offset: u64,
        len: usize,
    ) -> io::Result<Self> {
        let writes = opened.writes.take().expect("opened to be written to");
        let part = |opened: &OpenedWindow| opened.addresses(offset, len);
        let (file, part) = FileMap::new((managed, files), AccessPath::ByLoads, opened, part)?;
        let mut seen = 0;
        file.cache().write_error_since(&mut seen);
        Ok(Self {
            file,
            writes,
            part,
            seen: Mutex::new(seen),
            locked: Mutex::default(),
        })
    }

    /// True if this is its file.
    pub(crate) fn is_of(&self, file: &File) -> io::Result<bool> {
        self.writes.is_of(file)
    }

    /// The way back to its file.
    pub(crate) fn writes(&self) -> &Arc<FileWrites> {
        &self.writes
    }

    /// Where the map is.
    pub(crate) fn part(&self) -> &Range<usize> {
        &self.part
    }

    /// The file, as a map that is only read has it.
    pub(crate) fn file(&self) -> &FileMap {
        &self.file
    }

    /// True in a child of fork, of its parent's, if the kernel serves it there.
    pub(crate) fn was_inherited(&self) -> bool {
        self.file.was_inherited()
    }

    /// Bytes of the file's map that are not in the file yet, by whole pages.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.file.cache().dirty_pages() * PAGE_SIZE as u64
    }

    /// Brings pages in, as writes would.
    pub(crate) fn populate(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
    ) -> Result<(), FaultError> {
        self.file.is_all_there(&addresses)?;
        self.file.populate(managed, addresses, true)
    }

    /// Keeps pages for a system call; if it is to `write` to them, so that it can.
    pub(crate) fn hold(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        write: bool,
    ) -> Result<FilePin, FaultError> {
        if write {
            self.file.is_all_there(&addresses)?;
        }
        let pin = self.file.pin(managed, addresses.clone())?;
        if write {
            // Pinned pages are not protected by write-back any more; pages protected before are opened.
            let written = self.file.populate(managed, addresses.clone(), true);
            let opened = written.and_then(|()| self.file.open_to_writes(addresses.clone()));
            if let Err(error) = opened {
                self.file.unpin(addresses, pin);
                return Err(error);
            }
        }
        Ok(pin)
    }

    /// Writes whole pages that nobody has in memory, from an address on; returns how many bytes. `copy` has memory for them.
    ///
    /// # Safety
    /// The bytes can be read.
    pub(crate) unsafe fn write_whole(
        &self,
        addr: usize,
        bytes: *const [u8],
        copy: &mut Vec<u8>,
    ) -> usize {
        if !addr.is_multiple_of(PAGE_SIZE) {
            return 0;
        }
        if !self.file.calls_wait() {
            // SAFETY: the caller vouches for it.
            return unsafe { self.file.write_whole(addr, bytes) };
        }
        // A fault on one of the bytes waits for other threads, which is no time to have pages locked: they may be those of another map.
        let len = self.file.absent_from(addr, bytes.len());
        copy.clear();
        copy.reserve(len);
        // SAFETY: as many bytes as there is room for, which can be read, as the caller says; and the copy, which is here.
        unsafe {
            copy.as_mut_ptr().copy_from(bytes.cast(), len);
            copy.set_len(len);
            self.file.write_whole(addr, &raw const copy[..])
        }
    }

    /// `mlock(2)` of all of it.
    pub(crate) fn lock(&self, managed: &Managed) -> io::Result<()> {
        let mut locked = lock(&self.locked);
        if locked.is_none() {
            *locked = Some(self.hold(managed, self.part.clone(), true)?);
        }
        Ok(())
    }

    /// `munlock(2)` of all of it.
    pub(crate) fn unlock(&self) {
        if let Some(pin) = lock(&self.locked).take() {
            self.file.unpin(self.part.clone(), pin);
        }
    }

    /// `msync(2)`: dirty pages are on the device when this returns, with the metadata to find them; or the error
    /// of write-back, now or since the last time.
    pub(crate) fn flush(&self, files: &Files, addresses: Range<usize>) -> io::Result<()> {
        files.msync((self.file.cache(), &self.writes), addresses, libc::MS_SYNC);
        self.check_write_error()
    }

    /// The error with which something could not be written, since the last time.
    pub(crate) fn check_write_error(&self) -> io::Result<()> {
        self.file.write_error_since(&mut lock(&self.seen))
    }

    /// Starts that.
    pub(crate) fn flush_soon(&self, files: &Files, addresses: Range<usize>) {
        files.msync((self.file.cache(), &self.writes), addresses, libc::MS_ASYNC);
    }

    /// `madvise(2)`.
    pub(crate) fn advise(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        advice: Advice,
    ) -> io::Result<()> {
        match addresses.is_empty() {
            true => Ok(()),
            false => self.file.advise(managed, addresses, advice),
        }
    }

    /// Advice that may change bytes. Of a file's map nothing is lost by being given away: it is the file's.
    pub(crate) fn unchecked_advise(
        &self,
        addresses: Range<usize>,
        advice: UncheckedAdvice,
    ) -> io::Result<()> {
        if addresses.is_empty() {
            return Ok(());
        }
        match advice {
            UncheckedAdvice::DontNeed => self.file.invalidate(addresses),
            UncheckedAdvice::Free => {
                return Err(error::invalid("only anonymous memory can be freed"));
            }
            UncheckedAdvice::Remove if lock(&self.locked).is_some() => return Err(error::locked()),
            UncheckedAdvice::Remove => {
                let addresses = whole_pages(&addresses);
                let window = self.file.cache().addresses().start;
                let offsets = (addresses.start - window) as u64..(addresses.end - window) as u64;
                let punch = || self.writes.punch(offsets.clone());
                self.file.empty(addresses, punch)?;
            }
        }
        Ok(())
    }

    /// As `mremap(2)`, as long as the window has room. The page in which the map ends stays.
    pub(crate) fn remap(&mut self, len: usize) -> io::Result<()> {
        if !self.has_room(len)? {
            return Err(error::no_memory(
                "the map has no room to grow so far in its place; map the file anew",
            ));
        }
        let end = self.part.start + len;
        let first = end.next_multiple_of(PAGE_SIZE);
        if first < self.part.end && !self.was_inherited() {
            self.give_up(first..self.part.end);
        }
        self.part.end = end;
        Ok(())
    }

    /// True if the map can have so many bytes where it is. An error if it is locked: its length cannot change then. A child of fork does
    /// not inherit the parent's lock, as with mlock(2).
    pub(crate) fn has_room(&self, len: usize) -> io::Result<bool> {
        if !self.was_inherited() && lock(&self.locked).is_some() {
            return Err(error::locked());
        }
        let end = self.part.start.checked_add(len);
        let end = end.ok_or_else(error::too_large)?;
        Ok(end <= self.file.cache().addresses().end)
    }

    /// Gives back pages that this map does not use any more; their written bytes are in the file then, if they could
    /// be written.
    pub(crate) fn give_up(&self, addresses: Range<usize>) {
        files::write_back(self.file.cache(), addresses.clone());
        self.file.invalidate(addresses);
    }

    /// Takes it away; the written bytes are in the file then, if they could be written.
    pub(crate) fn unmap(self, managed: &Managed, files: &Files) {
        self.unlock();
        files::write_back(self.file.cache(), self.part.clone());
        self.file.unmap(managed, files);
    }

    /// In a child of fork: nothing is given back.
    pub(crate) fn leave(self) {
        core::mem::forget(self);
    }
}
