//! `mremap` of private memory to a longer window, with its pages.

use core::ops::Range;

use super::backing::Backing;
use super::mmap_lock::MmapWriteGuard;
use super::pending_flush::PendingFlush;
use super::space::{AddressSpace, MmError, check_range};
use super::vma::Attributes;
use crate::PAGE_SHIFT;
use crate::mmu::MmuError;

/// Why memory was not moved. It is where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveError {
    /// The budget has no room for page tables and words of the new window, and
    /// nothing can be evicted.
    Budget,
    /// The page tables cannot be changed.
    Mmu(MmuError),
    /// The range is not mapped as asked, or no VMA is left.
    Mappings(MmError),
}

impl From<MmError> for MoveError {
    fn from(error: MmError) -> Self {
        Self::Mappings(error)
    }
}

impl AddressSpace {
    /// Moves all that is mapped in `old`, which begins with the first page that `from` has,
    /// to where `to` shows its first page: pages, slots and attributes. Maps `new` there,
    /// which may be longer: the last VMA is as much longer. `to` has been mapped nowhere.
    /// After an error all is as it was.
    ///
    /// Unlike [`mremap`](Self::mremap) it copies page tables, and so it is for all of
    /// them.
    pub fn move_to(
        &self,
        (from, old): (&Backing, Range<usize>),
        (to, new): (&Backing, Range<usize>),
    ) -> Result<(), MoveError> {
        check_range(&old)?;
        check_range(&new)?;
        let (Some(source), Some(target)) = (from.ops(), to.ops()) else {
            return Err(MmError::Unmapped.into());
        };
        let pages = (new.len() >> PAGE_SHIFT) as u64;
        let has_room = target.pages().is_none_or(|has| pages <= has.end);
        if !has_room || new.len() < old.len() {
            return Err(MmError::Overflow.into());
        }
        let mmap = self.write_lock(&old);
        self.check_mapped(&mmap, &old, from)?;
        assert!(target.claim(self.id()), "memory that was mapped before");
        let mut pending = PendingFlush::default();
        let moved = self.map_moved(&mmap, &old, to, &new).and_then(|()| {
            // Faults in progress are over, and no other begins. The new VMAs were
            // write-locked from the start.
            self.for_each_vma(&mmap, old.clone(), |vma| vma.start_write(&mmap));
            source.move_to(to)
        });
        let goes = match moved {
            Ok(()) => old,
            Err(_) => new,
        };
        let taken = self.take_out_range(&mmap, goes, |_, attributes| {
            pending.add(&attributes.backing)
        });
        taken.expect("whole VMAs go without memory");
        moved
    }

    /// An error unless the range is mapped, and shows the window that it is.
    fn check_mapped(
        &self,
        mmap: &MmapWriteGuard<'_>,
        range: &Range<usize>,
        backing: &Backing,
    ) -> Result<(), MmError> {
        let is_it = |attributes: &Attributes, start: usize| {
            attributes.backing == *backing
                && attributes.pgoff == ((start - range.start) >> PAGE_SHIFT) as u64
        };
        let mut at = range.start;
        while at < range.end {
            let vma = self.find(mmap, at).ok_or(MmError::Unmapped)?;
            let whole = vma.start() == at && vma.end() <= range.end;
            if !whole || !is_it(&vma.attributes(mmap), at) {
                return Err(MmError::Unmapped);
            }
            at = vma.end();
        }
        Ok(())
    }

    /// Enters in `new` the mappings of `old`, showing `to`. Mappings that were entered before a
    /// failure stay.
    fn map_moved(
        &self,
        mmap: &MmapWriteGuard<'_>,
        old: &Range<usize>,
        to: &Backing,
        new: &Range<usize>,
    ) -> Result<(), MoveError> {
        let mut at = old.start;
        while at < old.end {
            let vma = self.find(mmap, at).ok_or(MmError::Unmapped)?;
            let mut attributes = vma.attributes(mmap);
            attributes.backing = to.clone();
            let start = new.start + (at - old.start);
            at = vma.end();
            let end = match at == old.end {
                true => new.end,
                false => new.start + (at - old.start),
            };
            self.add(mmap, start..end, attributes)?;
        }
        Ok(())
    }
}
