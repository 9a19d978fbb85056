//! Looking at the shape of a space, under `mmap_lock`.

use core::ops::Range;

use super::mmap_lock::{MmapHeld, MmapReadGuard};
use super::space::{AddressSpace, check_range};
use super::vma::Vma;
use crate::page::Protection;

impl AddressSpace {
    /// The VMA that has `address`.
    pub fn find(&self, mmap: &impl MmapHeld, address: usize) -> Option<&Vma> {
        let vma = self.vma_at_or_below(mmap, address)?;
        (vma.end() > address).then_some(vma)
    }

    /// The VMA that has `address`, or else the next one above.
    pub fn find_from(&self, mmap: &impl MmapHeld, address: usize) -> Option<&Vma> {
        self.find(mmap, address).or_else(|| {
            let next = self.exact(|tree, walk| tree.ceiling(address, walk));
            next.map(|entry| self.vma(entry))
        })
    }

    /// Calls `f` with every VMA that has a page of `range`, by address.
    pub fn for_each_vma<'a>(
        &'a self,
        mmap: &impl MmapHeld,
        range: Range<usize>,
        mut f: impl FnMut(&'a Vma),
    ) {
        let mut address = range.start;
        while let Some(vma) = self.find_from(mmap, address) {
            if vma.start() >= range.end {
                return;
            }
            f(vma);
            address = vma.end();
        }
    }

    /// The first address from `address` on that is mapped, a moment ago.
    pub fn next_mapped(&self, address: usize) -> Option<usize> {
        let mmap = self.mmap_lock.read();
        let vma = self.find_from(&mmap, address)?;
        Some(vma.start().max(address))
    }

    /// Calls `f` with the mapped parts of `range`, VMA by VMA, and their protection as of now.
    pub fn each_protection(
        &self,
        range: &Range<usize>,
        mut f: impl FnMut(Range<usize>, Protection),
    ) {
        let mmap = self.mmap_lock.read();
        self.for_each_vma(&mmap, range.clone(), |vma| {
            let part = vma.start().max(range.start)..vma.end().min(range.end);
            f(part, vma.attributes(&mmap).protection);
        });
    }

    /// The last VMA that starts at or below `address`.
    pub(super) fn vma_at_or_below(&self, mmap: &impl MmapHeld, address: usize) -> Option<&Vma> {
        let space = mmap.mmap_lock().space();
        assert!(space == self.id(), "mmap_lock of another space");
        let entry = self.exact(|tree, walk| tree.floor(address, walk))?;
        Some(self.vma(entry))
    }

    /// Asserts everything that holds of a space while nobody changes it and
    /// no fault is in progress. For tests.
    ///
    /// # Panics
    /// If something does not hold.
    pub fn validate(&self, mmap: &MmapReadGuard<'_>) {
        self.tree.check();
        let mut last: Option<&Vma> = None;
        let mut count = 0;
        self.tree.for_each(|entry| {
            let vma = self.vma(entry);
            let range = vma.range();
            assert_eq!(vma.start(), entry.start, "the tree's key");
            assert_eq!(vma.index(), entry.vma, "the tree's value");
            assert_eq!(vma.space(), self.id(), "a VMA of another space");
            vma.assert_attached();
            assert_eq!(vma.readers(), 0, "somebody reads it");
            let visible = self.mmap_lock.visible_readers(vma);
            assert_eq!(visible, 0, "somebody reads it by its bias");
            check_range(&range).expect("a range of whole pages");
            if let Some(last) = last {
                assert!(last.end() <= range.start, "two VMAs overlap");
                assert!(
                    !super::merge::mergeable(mmap, last, vma),
                    "two VMAs could be one: {range:x?} and the one before"
                );
            }
            last = Some(vma);
            count += 1;
        });
        assert_eq!(count, self.map_count());
        // A claimed slot is in the tree, and all others are detached.
        let mut claimed = 0;
        for vma in (0..).map_while(|index| self.slabs.vmas.try_get(index)) {
            if vma.space() == self.id() {
                claimed += 1;
            } else if vma.space() == 0 {
                vma.assert_detached();
            }
        }
        assert_eq!(claimed, count, "VMAs were lost");
    }
}
