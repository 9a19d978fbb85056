//! A file's own mapping at an address of the kernel's choice.

use super::mmu::system;
use crate::errno::errno;
use crate::table::Guarded;
use core::ops::Range;
use libc::c_void;
use softfault_engine::mmu::MmuError;

/// A mapping until it is put in a window's place, or dropped.
pub(crate) struct UnplacedMapping(Range<usize>);

impl UnplacedMapping {
    /// Maps a part of a file of the table's, inaccessible at first: after mlockall(2) with `MCL_FUTURE` the kernel brings in at once what can
    /// be read.
    pub(crate) fn new(file: &Guarded, part: Range<u64>, flags: i32) -> Result<Self, MmuError> {
        let bytes = (part.end - part.start) as usize;
        let start = map(file, part, flags)?;
        Ok(Self(start..start + bytes))
    }

    /// From now on it can be read. Nothing is brought in.
    pub(crate) fn allow_reads(&self) -> Result<(), MmuError> {
        let (start, bytes) = (self.0.start as *mut c_void, self.0.len());
        // SAFETY: a mapping of this, which nobody else knows.
        match unsafe { sync::kernel_calls::mprotect(start, bytes, libc::PROT_READ) } {
            0 => Ok(()),
            _ => Err(system(errno())),
        }
    }

    pub(crate) fn advise(&self, advice: i32) -> Result<(), MmuError> {
        let start = self.0.start as *mut c_void;
        // SAFETY: advice about a mapping of this, which nobody else knows.
        match unsafe { sync::kernel_calls::madvise(start, self.0.len(), advice) } {
            0 => Ok(()),
            _ => Err(system(errno())),
        }
    }

    /// Moves it to the place of a mapping of ours, which it replaces.
    pub(super) fn put(self, to: usize) -> Result<(), MmuError> {
        let (from, bytes) = (self.0.start as *mut c_void, self.0.len());
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let to = to as *mut c_void;
        // SAFETY: from the mapping of this to the place of a window that the caller has for itself.
        match unsafe { sync::kernel_calls::mremap(from, bytes, bytes, flags, to) } {
            libc::MAP_FAILED => Err(system(errno())),
            _ => {
                core::mem::forget(self);
                Ok(())
            }
        }
    }
}

impl Drop for UnplacedMapping {
    fn drop(&mut self) {
        // SAFETY: a mapping of this, which nobody else knows.
        unsafe { sync::kernel_calls::munmap(self.0.start as *mut c_void, self.0.len()) };
    }
}

/// A file's own mapping, inaccessible, as above: where it is.
pub(crate) fn map_aside(file: &Guarded, bytes: usize, sharing: i32) -> Result<usize, MmuError> {
    map(file, 0..bytes as u64, sharing | libc::MAP_NORESERVE)
}

fn map(file: &Guarded, part: Range<u64>, flags: i32) -> Result<usize, MmuError> {
    let number = file.number() as usize;
    let bytes = (part.end - part.start) as usize;
    let (none, flags) = (libc::PROT_NONE as usize, flags as usize);
    let args = [0, bytes, none, flags, number, part.start as usize];
    // SAFETY: a new mapping.
    unsafe { file.run(libc::SYS_mmap, args) }.map_err(system)
}
