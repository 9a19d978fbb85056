//! `mmap`: entering a mapping.

use core::ops::Range;

use super::merge::continues;
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
        (attributes.pgoff.checked_add(count)).ok_or(MmError::Overflow)?;
        let mmap = self.mmap_lock.write();
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
}
