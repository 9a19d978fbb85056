//! Map and unmap beside one another: `verbs=shared`.
//!
//! A verb holds `mmap_lock` for write because it may change several VMAs and any node of the tree. Most maps and unmaps do
//! not: they enter one VMA into a gap, or take one out, and no neighbour can merge with it. Such a verb shares `mmap_lock` with
//! others of its kind ([`GroupLock`](crate::lock::group::GroupLock)), and takes only the leaf of the tree that has the start of its
//! range, and where that leaf is full or would be empty nodes above it ([`tree::leaf`](super::tree)):
//!
//! ```text
//!   map                                            unmap
//!   m1  share mmap_lock                            u1  share mmap_lock
//!   m2  a slot, filled in, nobody's yet            u2  take the leaf
//!   m3  take the leaf; nothing overlaps            u3  one VMA has just the range
//!   m4  refcnt = 1               (Release)         u4  refcnt: no reader may come
//!   m5  into the leaf                              u5  out of the leaf
//!   m6  leave the leaf           (Release)         u6  leave the leaf
//!                                                  u7  wait for the readers; the slot is free
//!                                                  u8  zap, pay back
//!   m7  leave mmap_lock                            u9  leave mmap_lock
//! ```
//!
//! **Which ranges.** The backing is alone ([`VmOps::is_alone`](super::backing::VmOps::is_alone)): the range shows all of its pages,
//! and no other VMA shows one. So no neighbour has the same backing, nothing merges, and no two unmaps meet in one page table. And
//! the range is the backing's own: a window's addresses. Between u6 and u8 others may map what they like beside this verb, while
//! cores still have translations of the old pages; but not here, for these addresses are given out again after u8. Memory that
//! is shown elsewhere, as a child of fork has it, goes by `mmap_lock` for write, which keeps the next map away until u8.
//! The range has to lie within the bounds of one leaf; and where a leaf goes, another has to stay beside it. All else goes by
//! `mmap_lock` for write, and the verb says so by `None`.
//!
//! **Overlap.** m3 looks at the leaf, and at the last VMA before it, if all of this one are above. A VMA that reaches
//! from there into this leaf was entered under `mmap_lock` for write, so meanwhile it can only go: whether it is looked at
//! before or after is no matter.
//!
//! **An entry of a taken leaf** is attached, with a range and attributes that stay: to detach it, a verb takes the leaf first
//! (u2 before u4), and to change it takes `mmap_lock` for write.
//!
//! **Readers** come as ever, without a lock. One that finds a VMA after u4 finds it write-locked, goes by `mmap_lock`, and waits
//! there until all verbs have left. A stale lookup may find a VMA between m4 and m6: it is complete, and as good as mapped.

use core::ops::Range;

use super::mmap_lock::MmapSharedGuard;
use super::pending_flush::PendingFlush;
use super::space::{AddressSpace, MmError};
use super::tree::{LeafLockError, LockedLeaf, Spare, Walk};
use super::vma::Attributes;
use super::vma_lock::refcount;
use crate::mmu::gather::MmuGather;

impl AddressSpace {
    /// Maps a range whose backing is alone, and was claimed for this space just now. `None` if that takes `mmap_lock` for write.
    pub(super) fn mmap_shared(
        &self,
        mmap: &MmapSharedGuard<'_>,
        range: &Range<usize>,
        attributes: &Attributes,
    ) -> Option<Result<(), MmError>> {
        let index = self.slabs.vmas.alloc()?;
        let vma = self.slabs.vmas.get(index);
        vma.init_shared(mmap, range.clone(), attributes.clone());
        let mut spare = Spare::default();
        let result = self.enter_shared(range, index, &mut spare);
        self.tree.give_back(&mut spare);
        if !matches!(result, Some(Ok(()))) {
            vma.clear_shared(mmap);
            self.slabs.vmas.free(index);
        }
        result
    }

    /// Enters a VMA into its leaf (m3 to m6), with spare nodes where that is full.
    fn enter_shared(
        &self,
        range: &Range<usize>,
        index: u32,
        spare: &mut Spare,
    ) -> Option<Result<(), MmError>> {
        loop {
            let mut leaf = self.tree.lock_leaf(range.start, &mut Walk::default());
            if let Err(error) = self.check_gap(&leaf, range)? {
                return Some(Err(error));
            }
            match leaf.make_room(spare) {
                Ok(()) => {
                    refcount::attach(self.slabs.vmas.get(index));
                    leaf.insert(range.start, index, spare);
                    return Some(Ok(()));
                }
                Err(LeafLockError::Nodes(count)) => {
                    // Others do not wait for memory.
                    drop(leaf);
                    self.tree.fill(spare, count).ok()?;
                }
                Err(LeafLockError::Moved) => {}
                Err(LeafLockError::Alone) => return None,
            }
        }
    }

    /// Whether a range of this leaf is free.
    fn check_gap(
        &self,
        leaf: &LockedLeaf<'_>,
        range: &Range<usize>,
    ) -> Option<Result<(), MmError>> {
        if leaf.upper.is_some_and(|upper| range.end > upper) {
            return None;
        }
        if leaf
            .ceiling(range.start)
            .is_some_and(|above| above.start < range.end)
        {
            return Some(Err(MmError::Overlap));
        }
        let reaches_in = |below| self.vma(below).end() > range.start;
        match leaf.floor(range.start) {
            Some(below) if reaches_in(below) => Some(Err(MmError::Overlap)),
            None if leaf.lower > 0 => {
                let before = self.tree.floor(leaf.lower - 1, &mut Walk::default());
                // It may have gone meanwhile, and its slot be another VMA's: a guess, if it says no.
                let is_free = !before.ok()?.is_some_and(reaches_in);
                is_free.then_some(Ok(()))
            }
            _ => Some(Ok(())),
        }
    }

    /// Unmaps a range that one VMA has, whose backing is alone. `None` if that takes `mmap_lock` for write.
    pub(super) fn munmap_shared(
        &self,
        mmap: &MmapSharedGuard<'_>,
        range: &Range<usize>,
        removed: &mut impl FnMut(Range<usize>, Attributes),
    ) -> Option<()> {
        let (leaf, entry) = loop {
            let mut leaf = self.tree.lock_leaf(range.start, &mut Walk::default());
            let entry = leaf
                .floor(range.start)
                .filter(|entry| entry.start == range.start)?;
            let vma = self.vma(entry);
            if vma.range() != *range || vma.is_frozen() || !vma.is_alone(&leaf, mmap) {
                return None;
            }
            match leaf.make_way() {
                Ok(()) => break (leaf, entry),
                Err(LeafLockError::Moved) => {}
                Err(_) => return None,
            }
        };
        let vma = self.vma(entry);
        let readers = refcount::keep_readers_out(vma);
        leaf.remove(range.start);
        refcount::detach_when_read(vma, mmap.mmap_lock(), readers);
        let attributes = vma.clear_shared(mmap);
        self.slabs.vmas.free(entry.vma);
        let mut gather = MmuGather::new();
        let mut pending = PendingFlush::default();
        if let Some(ops) = attributes.backing.ops()
            && !ops.removed(attributes.pgoff, range.len(), &mut gather)
        {
            pending.add(&attributes.backing);
        }
        removed(range.clone(), attributes);
        Some(())
    }
}
