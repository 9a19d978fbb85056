//! The check between finding a VMA without a lock and using it.
//!
//! A lookup hands over a slot that was a VMA of this space, covering the
//! address, at some moment in the past. With a reference in hand it is asked
//! again: attached (the reference was to be had), of this space, not
//! write-locked ([`start_read`] asks these), and still covering the address.

use super::mmap_lock::MmapLock;
use super::vma::Vma;
use super::vma_lock::{ReadError, VmaRead, start_read};

/// Locks `vma` for reading if it is a VMA of the space of `mmap_lock` and
/// covers `addr`. Never waits. Counts why not in
/// [`MmapLock::vma_misses`].
#[inline]
pub fn try_lock_at<'a>(
    vma: &'a Vma,
    mmap_lock: &MmapLock,
    addr: usize,
) -> Result<VmaRead<'a>, ReadError> {
    let misses = mmap_lock.vma_misses();
    let read = start_read(vma, mmap_lock).inspect_err(|error| match error {
        ReadError::Detached => misses.detached.add(1),
        ReadError::Reused => misses.other_space.add(1),
        ReadError::WriteLocked | ReadError::Frozen => misses.write_locked.add(1),
        ReadError::Limit => misses.limit.add(1),
    })?;
    if !vma.range().contains(&addr) {
        misses.other_range.add(1);
        return Err(ReadError::Reused);
    }
    Ok(read)
}
