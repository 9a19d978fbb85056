//! `mmap`: entering a mapping.

use core::ops::Range;

use super::backing::Backing;
use super::merge::continues;
use super::mmap_lock::MmapWriteGuard;
use super::space::{AddressSpace, MmError, check_range, pages};
use super::vma::Attributes;

impl AddressSpace {
    /// Maps `range`. Neighbours that agree become one VMA with it:
    ///
    /// ```text
    ///   before     new       after
    ///   AA--BB      CC       AACCBB     none agrees
    ///   AA--BB      AA       AAAABB     the one below grows
    ///   AA--BB      BB       AABBBB     the one above begins lower
    ///   AA--AA      AA       AAAAAA     the one below takes in both
    /// ```
    pub fn mmap(&self, range: Range<usize>, attributes: Attributes) -> Result<(), MmError> {
        check_range(&range)?;
        let count = pages(&range);
        let end = attributes.pgoff.checked_add(count);
        let end = end.ok_or(MmError::Overflow)?;
        let ops = attributes.backing.ops();
        let pages_there = ops.and_then(|ops| ops.pages());
        if pages_there.is_some_and(|pages| attributes.pgoff < pages.start || end > pages.end) {
            return Err(MmError::Overflow);
        }
        attributes.check_alignment(&range)?;
        if attributes.is_alone(&range)
            && let Some(mmap) = self.mmap_lock.share()
            && ops.is_some_and(|ops| ops.claim(self.id()))
            && let Some(done) = self.mmap_shared(&mmap, &range, &attributes)
        {
            return done;
        }
        let mmap = self.write_lock(&range);
        // Not by what `claim` said before: others may have mapped it since. It also says to the backing, with nobody beside it, that
        // it is mapped.
        if ops.is_some_and(|ops| !ops.claim(self.id()))
            && self.shows(&mmap, &attributes.backing, attributes.pgoff..end)
        {
            return Err(MmError::Overlap);
        }
        let below = self.vma_at_or_below(&mmap, range.end - 1);
        if below.is_some_and(|vma| vma.end() > range.start) {
            return Err(MmError::Overlap);
        }
        let below = below.filter(|vma| {
            let agrees = || continues(&vma.attributes(&mmap), pages(&vma.range()), &attributes);
            vma.end() == range.start && agrees()
        });
        let above = self.find(&mmap, range.end);
        let above = above.filter(|vma| {
            let agrees = || continues(&attributes, count, &vma.attributes(&mmap));
            vma.start() == range.end && agrees()
        });
        match (below, above) {
            (Some(below), above) => {
                let end = above.map_or(range.end, |above| above.end());
                self.set_end(&mmap, below, end);
                if let Some(above) = above {
                    self.take_out(&mmap, above);
                }
            }
            (None, Some(above)) => self.set_start(&mmap, above, range.start)?,
            (None, None) => {
                self.add(&mmap, range, attributes)?;
            }
        }
        Ok(())
    }

    /// True if a VMA shows any of these pages of a backing.
    fn shows(&self, mmap: &MmapWriteGuard<'_>, backing: &Backing, shown: Range<u64>) -> bool {
        let mut found = false;
        self.for_each_vma(mmap, 0..usize::MAX, |vma| {
            let attributes = vma.attributes(mmap);
            let end = attributes.pgoff + pages(&vma.range());
            let overlaps = attributes.pgoff < shown.end && shown.start < end;
            found |= overlaps && attributes.backing == *backing;
        });
        found
    }
}
