//! A part of a space that stays as it is while the process forks.
//!
//! The write lock of a VMA ends with `mmap_lock`. A frozen VMA is write-locked without
//! it: its `lock_seq` is [`FROZEN`], which no sequence ever reaches, until it is thawed.
//! So `mmap_lock` is free while the process forks; faults and verbs elsewhere in the
//! space go on.
//!
//! ```text
//!   freeze, under mmap_lock for write          a fault, or a verb, on the VMA
//!   f1  word: even -> odd                      r1  reference; lock_seq is FROZEN: drop it
//!   f2  wait for readers, lock_seq = FROZEN    r2  word is odd: sleep on it
//!   f3  mmap_lock let go                       r3  look again
//!   thaw, with no lock
//!   t1  lock_seq = 0           (Release)
//!   t2  word: odd -> even      (Release), wake all
//! ```
//!
//! f2 publishes `FROZEN` and f1 as `start_write` publishes a sequence. r2 pairs with t2.
//! A verb sleeps with `mmap_lock` for write in its hand only if it meets a VMA that was
//! not in the range it asked for: [`AddressSpace::write_lock`] waits without it. Thawing
//! takes no lock, so it waits for nobody.

use super::mmap_lock::{MmapLock, MmapWriteGuard};
use super::space::AddressSpace;
use super::vma::{Attributes, Vma};
use super::vma_lock::FROZEN;
use crate::PAGE_SIZE;
use core::ops::Range;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Private memory of a space that nobody changes, and in which no fault is under way
/// that would have a page locked, until this is dropped.
pub struct Frozen<'a> {
    mmap_lock: &'a MmapLock,
    vmas: Vec<&'a Vma>,
    /// The ranges and attributes of these VMAs, for a child in which nothing of the parent's is locked.
    known: Vec<(Range<usize>, Attributes)>,
}

impl Frozen<'_> {
    /// Calls `f` with every frozen mapping, by address within each range.
    pub fn for_each(&self, mut f: impl FnMut(Range<usize>, Attributes)) {
        for (range, attributes) in &self.known {
            f(range.clone(), attributes.clone());
        }
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        for vma in &self.vmas {
            vma.thaw();
        }
        let word = self.mmap_lock.frozen();
        // Release pairs with the Acquire in `wait_for_thaw`.
        word.fetch_add(1, Release);
        word.wake(u32::MAX);
    }
}

impl AddressSpace {
    /// Freezes the VMAs of private memory that begin in `ranges`, and waits for the
    /// faults under way in them. Faults and verbs on these VMAs wait until the answer is
    /// dropped; all others go on. A fault that waits for I/O with no lock of the space
    /// goes on waiting. One freeze at a time: the caller sees to it.
    pub fn freeze(&self, ranges: impl IntoIterator<Item = Range<usize>>) -> Frozen<'_> {
        let mmap = self.mmap_lock.write();
        let mut frozen = Frozen {
            mmap_lock: &self.mmap_lock,
            vmas: Vec::new(),
            known: Vec::new(),
        };
        // Relaxed: published by the write locks below.
        let before = self.mmap_lock.frozen().fetch_add(1, Relaxed);
        assert!(before.is_multiple_of(2), "a space is frozen once at a time");
        for range in ranges {
            self.for_each_vma(&mmap, range, |vma| {
                let attributes = vma.attributes(&mmap);
                let ops = attributes.backing.ops();
                if ops.is_some_and(|ops| ops.is_frozen_by_fork()) {
                    vma.freeze(&mmap);
                    frozen.vmas.push(vma);
                    frozen.known.push((vma.range(), attributes));
                }
            });
        }
        frozen
    }

    /// Takes `mmap_lock` for write, for a verb on `range`, once nothing that the verb may
    /// change is frozen: VMAs of the range and their neighbours.
    pub(super) fn write_lock(&self, range: &Range<usize>) -> MmapWriteGuard<'_> {
        let near = range.start.saturating_sub(PAGE_SIZE)..range.end.saturating_add(PAGE_SIZE);
        loop {
            let mmap = self.mmap_lock.write();
            let mut frozen = None;
            if self.mmap_lock.is_freezing() {
                self.for_each_vma(&mmap, near.clone(), |vma| {
                    frozen = frozen.or(vma.is_frozen().then_some(vma));
                });
            }
            let Some(vma) = frozen else {
                return mmap;
            };
            drop(mmap);
            self.mmap_lock.wait_for_thaw(vma);
        }
    }

    /// Waits until the VMA that has `address` is thawed, without `mmap_lock`. False if
    /// it is not frozen, as far as this can be seen without a lock.
    #[cold]
    pub(super) fn wait_if_frozen(&self, address: usize) -> bool {
        if !self.mmap_lock.is_freezing() {
            return false;
        }
        let found = self.find_unlocked(address, &mut Default::default());
        let frozen = found.filter(|vma| vma.is_frozen());
        if let Some(vma) = frozen {
            self.mmap_lock.wait_for_thaw(vma);
        }
        frozen.is_some()
    }
}

impl MmapLock {
    /// True if VMAs of the space are frozen, as far as can be seen without its lock.
    fn is_freezing(&self) -> bool {
        // Relaxed: a caller that has to know has seen a frozen VMA, or has `mmap_lock`.
        !self.frozen().load(Relaxed).is_multiple_of(2)
    }

    /// Sleeps while the VMA is frozen. A slot that is another VMA by now is waited for
    /// until the next thaw at most.
    #[cold]
    pub(super) fn wait_for_thaw(&self, vma: &Vma) {
        let begin = self.clock().now_ns();
        loop {
            // Acquire pairs with the Release of the thaw.
            let now = self.frozen().load(Acquire);
            if now.is_multiple_of(2) || !vma.is_frozen() {
                break;
            }
            self.frozen().wait(now, None);
        }
        let waited = self.clock().now_ns() - begin;
        self.thaw_waits().record(waited);
    }
}

impl Vma {
    /// Write-locks the VMA until [`thaw`](Self::thaw), however long `mmap` is held.
    fn freeze(&self, mmap: &MmapWriteGuard<'_>) {
        self.assert_space(mmap);
        self.start_write_as(mmap, FROZEN);
    }

    /// Lets faults in again. For the thread that has frozen it: no other changes it meanwhile.
    fn thaw(&self) {
        // Release: nothing was changed, and the next reader may go by the state from
        // before. 0 is no sequence of a space.
        self.lock_seq.store(0, Release);
    }

    /// True if it is frozen: exact under `mmap_lock` for write, a guess otherwise.
    pub(super) fn is_frozen(&self) -> bool {
        // Relaxed: a guess, or ordered by the lock.
        self.lock_seq.load(Relaxed) == FROZEN
    }
}
