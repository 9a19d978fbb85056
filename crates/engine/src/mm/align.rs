//! Where VMAs of huge pages may begin, end and be cut: between huge pages.

use super::mmap_lock::MmapWriteGuard;
use super::space::{AddressSpace, MmError};
use super::vma::Attributes;
use core::ops::Range;

impl Attributes {
    /// An error if a VMA of `range` would begin or end inside a huge page.
    pub(super) fn check_alignment(&self, range: &Range<usize>) -> Result<(), MmError> {
        let ends = [0, range.len()];
        let aligned = |&distance: &usize| {
            let addr = range.start + distance;
            (self.backing.ops()).is_none_or(|ops| ops.is_aligned(self.pgoff, distance, addr))
        };
        match ends.iter().all(aligned) {
            true => Ok(()),
            false => Err(MmError::Misaligned),
        }
    }
}

impl AddressSpace {
    /// An error if a cut at either end of `range` would go through a huge page.
    pub(super) fn check_cuts(
        &self,
        mmap: &MmapWriteGuard<'_>,
        range: &Range<usize>,
    ) -> Result<(), MmError> {
        for at in [range.start, range.end] {
            let Some(vma) = self.find(mmap, at) else {
                continue;
            };
            let attributes = vma.attributes(mmap);
            let distance = at - vma.start();
            let ops = attributes.backing.ops();
            if ops.is_some_and(|ops| !ops.is_aligned(attributes.pgoff, distance, at)) {
                return Err(MmError::Misaligned);
            }
        }
        Ok(())
    }
}
