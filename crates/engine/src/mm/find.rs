//! Finding and locking the VMA of an address: the first step of a fault. The
//! idea is Linux's `lock_vma_under_rcu`, with a tree that is validated instead
//! of kept alive.
//!
//! Lock rules: `lock_vma` takes no lock but the VMA's, and never waits, but for a moment for a node of a tree that verbs share.
//! `lock_vma_or_mmap_lock` may wait for `mmap_lock` and has let it go when it
//! returns. Neither may be called with a VMA lock of the same space in hand.

use super::mmap_lock::{MmapLock, MmapReadGuard};
use super::space::AddressSpace;
use super::tree::Walk;
use super::vma::Vma;
use super::vma_lock::{ReadError, VmaRead, start_read, start_read_locked};

/// Nothing is mapped at the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotMapped;

/// How often a VMA that slipped away is looked for again without a lock.
const ATTEMPTS: usize = 2;

impl AddressSpace {
    /// Locks the VMA that has `address`, without `mmap_lock`. `None` if that
    /// could not be done: because nothing is mapped there, or a writer is at
    /// work; `mmap_lock` tells which.
    #[inline]
    pub fn lock_vma(&self, address: usize) -> Option<VmaRead<'_>> {
        let mut walk = Walk::default();
        let _section = self.mmap_lock.read_section();
        for _ in 0..ATTEMPTS {
            let vma = self.find_unlocked(address, &mut walk)?;
            match try_lock_at(vma, &self.mmap_lock, address) {
                Ok(read) => return Some(read),
                // It is not the one any more: another may be.
                Err(ReadError::Detached | ReadError::Reused) => {}
                Err(ReadError::WriteLocked | ReadError::Limit | ReadError::Frozen) => return None,
            }
        }
        None
    }

    /// The first half of `lock_vma`: a VMA that had `address` a moment ago. By
    /// now its slot may be free, or a VMA of another space (outside of a read section);
    /// only [`try_lock_at`] tells.
    #[inline]
    pub fn find_unlocked(&self, address: usize, walk: &mut Walk) -> Option<&Vma> {
        let entry = self.tree.floor(address, walk).ok()??;
        let vma = self.vma(entry);
        // A guess that saves the reference where nothing is mapped.
        (vma.end() > address).then_some(vma)
    }

    /// Locks the VMA that has `address`, by way of `mmap_lock` if it cannot be
    /// had without.
    pub fn lock_vma_or_mmap_lock(&self, address: usize) -> Result<VmaRead<'_>, NotMapped> {
        loop {
            if let Some(read) = self.lock_vma(address) {
                return Ok(read);
            }
            if !self.wait_if_frozen(address) {
                break;
            }
        }
        self.lock_vma_and_mmap_lock(address).map(|(read, _)| read)
    }

    /// Locks `mmap_lock` for read and the VMA that has `address`. The VMA is
    /// to be let go first.
    pub fn lock_vma_and_mmap_lock(
        &self,
        address: usize,
    ) -> Result<(VmaRead<'_>, MmapReadGuard<'_>), NotMapped> {
        loop {
            let mmap = self.mmap_lock.read();
            let vma = self.find(&mmap, address).ok_or(NotMapped)?;
            let error = match start_read_locked(vma, &mmap) {
                Ok(read) => return Ok((read, mmap)),
                Err(error) => error,
            };
            drop(mmap);
            match error {
                ReadError::Frozen => self.mmap_lock.wait_for_thaw(vma),
                // It has as many readers as it may have. Some will leave; they may
                // need mmap_lock for that.
                _ => sync::thread::yield_now(),
            }
        }
    }
}

/// Between finding a VMA without a lock and using it: locks `vma` for reading if it is a VMA
/// of the space of `mmap_lock` and covers `addr`. Never waits. Counts why not in
/// [`MmapLock::vma_misses`].
///
/// A lookup hands over a slot that was a VMA of this space, covering the address, at some
/// moment in the past. With a reference in hand it is asked again: attached (the reference
/// was to be had), of this space, not write-locked ([`start_read`] asks these), and still
/// covering the address.
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
