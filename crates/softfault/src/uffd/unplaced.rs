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
        allow_reads(&self.0)
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
        // SAFETY: from the mapping of this to the place of a window that the caller has for itself.
        unsafe { move_part(self.0.clone(), to) }?;
        self.keep();
        Ok(())
    }

    /// Leaves it to the caller, and says where it is.
    pub(super) fn keep(self) -> usize {
        let start = self.0.start;
        core::mem::forget(self);
        start
    }
}

/// From now on a part of an unplaced mapping can be read. Nothing is brought in.
pub(super) fn allow_reads(part: &Range<usize>) -> Result<(), MmuError> {
    let (start, bytes) = (part.start as *mut c_void, part.len());
    // SAFETY: a mapping of the caller's, which nobody else knows.
    match unsafe { sync::kernel_calls::mprotect(start, bytes, libc::PROT_READ) } {
        0 => Ok(()),
        _ => Err(system(errno())),
    }
}

/// Moves a part of an unplaced mapping to the place of a mapping of ours, which it replaces.
///
/// # Safety
/// Both are the caller's.
pub(super) unsafe fn move_part(from: Range<usize>, to: usize) -> Result<(), MmuError> {
    let (start, bytes) = (from.start as *mut c_void, from.len());
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller's promise.
    match unsafe { sync::kernel_calls::mremap(start, bytes, bytes, flags, to as *mut c_void) } {
        libc::MAP_FAILED => Err(system(errno())),
        _ => Ok(()),
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
