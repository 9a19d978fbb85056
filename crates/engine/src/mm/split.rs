//! Making two VMAs of one, and cutting one shorter.
//!
//! Every change of a range is made under the VMA's write lock, so a fault that
//! holds the VMA sees it whole. One that holds nothing may find an address
//! under the wrong one of the two for a moment: under the lock it sees the
//! range, or that the VMA is write-locked, and asks `mmap_lock`.

use core::ops::Range;

use super::mmap_lock::MmapWriteGuard;
use super::space::{AddressSpace, MmError, pages};
use super::tree::Walk;
use super::vma::{Attributes, Vma};

/// The attributes of a part of a VMA.
pub(super) fn attributes_of_part(
    mmap: &MmapWriteGuard<'_>,
    vma: &Vma,
    part: &Range<usize>,
) -> Attributes {
    let mut attributes = vma.attributes(mmap);
    attributes.pgoff += pages(&(vma.start()..part.start));
    attributes
}

impl AddressSpace {
    /// Splits `vma` at `at`, which lies inside of it; returns the upper part.
    /// Changes nothing if it fails.
    ///
    /// ```text
    ///        at
    ///   AAAAAA      AA|AAAA
    /// ```
    pub(super) fn split(
        &self,
        mmap: &MmapWriteGuard<'_>,
        vma: &Vma,
        at: usize,
    ) -> Result<&Vma, MmError> {
        let (lower, upper) = (vma.start()..at, at..vma.end());
        vma.start_write(mmap);
        let attributes = attributes_of_part(mmap, vma, &upper);
        let new = self.add(mmap, upper, attributes)?;
        vma.set_range(mmap, lower);
        Ok(new)
    }

    /// Enters a new VMA. Changes nothing if it fails.
    pub(super) fn add(
        &self,
        mmap: &MmapWriteGuard<'_>,
        range: Range<usize>,
        attributes: Attributes,
    ) -> Result<&Vma, MmError> {
        let index = self.slabs.alloc_vma(mmap).ok_or(MmError::NoMemory)?;
        let vma = self.slabs.vmas.get(index);
        let start = range.start;
        vma.init(mmap, range, attributes)
            .inspect_err(|_| self.slabs.vmas.free(index))?;
        // In the tree before it is attached: a lookup that finds it is sent to
        // mmap_lock, as it is afterwards, for it is write-locked from birth.
        if let Err(error) = self.tree.insert(start, index, &mut Walk::default()) {
            vma.clear(mmap);
            self.slabs.vmas.free(index);
            return Err(error.into());
        }
        vma.attach(mmap);
        Ok(vma)
    }

    /// Takes a VMA out and waits until no fault is in progress under it.
    pub(super) fn take_out(&self, mmap: &MmapWriteGuard<'_>, vma: &Vma) -> Attributes {
        let removed = self.tree.remove(vma.start(), &mut Walk::default());
        assert!(removed == vma.index(), "the tree has another VMA there");
        vma.start_write(mmap);
        vma.detach(mmap);
        let attributes = vma.clear(mmap);
        self.slabs.free_vma(mmap, removed);
        attributes
    }

    /// Gives a VMA another start, lower or higher; its pages do not
    /// change. Changes nothing if it fails.
    pub(super) fn set_start(
        &self,
        mmap: &MmapWriteGuard<'_>,
        vma: &Vma,
        start: usize,
    ) -> Result<(), MmError> {
        let range = vma.range();
        vma.start_write(mmap);
        let mut attributes = vma.attributes(mmap);
        if start > range.start {
            attributes.pgoff += pages(&(range.start..start));
        } else {
            attributes.pgoff -= pages(&(start..range.start));
        }
        self.tree.rekey(range.start, start, &mut Walk::default())?;
        vma.set_range(mmap, start..range.end);
        vma.set_attributes(mmap, attributes);
        Ok(())
    }

    /// Gives a VMA another end.
    pub(super) fn set_end(&self, mmap: &MmapWriteGuard<'_>, vma: &Vma, end: usize) {
        vma.start_write(mmap);
        vma.set_range(mmap, vma.start()..end);
    }
}
