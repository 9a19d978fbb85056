//! `mremap`: moving mappings to another address.

use core::ops::Range;

use super::mmap_lock::MmapWriteGuard;
use super::pending_flush::PendingFlush;
use super::space::{AddressSpace, MmError, check_range};
use super::split::attributes_of_part;

impl AddressSpace {
    /// Moves the mappings in `old`, whole VMAs or parts of them, to `start`.
    /// No page is copied, moved or zapped: they belong to the window, and
    /// `pgoff` says which of them a VMA shows. Fails if `old` has a hole, or if
    /// anything is mapped at the new place (`old` itself included).
    ///
    /// ```text
    ///     ....                old
    ///   AAAABB--------   →   AA----AABB----    `pgoff` goes with the pages
    /// ```
    ///
    /// For page tables of our own only: where userfaultfd serves a window, its
    /// pages are at the window's addresses and nowhere else.
    pub fn mremap(&self, old: Range<usize>, start: usize) -> Result<(), MmError> {
        check_range(&old)?;
        let end = start.checked_add(old.len()).ok_or(MmError::Overflow)?;
        let new = start..end;
        check_range(&new)?;
        let mmap = self.write_lock(&old);
        let mapped = self.find_from(&mmap, new.start);
        let itself = new.start < old.end && old.start < new.end;
        if itself || mapped.is_some_and(|vma| vma.start() < new.end) {
            return Err(MmError::Overlap);
        }
        self.check_cuts(&mmap, &old)?;
        let mut pending = PendingFlush::default();
        // The steps that can fail come first: the new VMAs, then the cut out of the old
        // ones. All of them are write-locked until the end.
        let moved = self.copy_to(&mmap, &old, start).and_then(|()| {
            // Faults under the old VMAs are over when they are out.
            self.take_out_range(&mmap, old, |piece, attributes| {
                if let Some(ops) = attributes.backing.ops() {
                    ops.unshare(attributes.pgoff, piece.len());
                }
                pending.add(&attributes.backing);
            })
        });
        if moved.is_err() {
            let undone = self.take_out_range(&mmap, new, |_, _| {});
            undone.expect("whole VMAs go without memory");
            return moved;
        }
        self.merge_at(&mmap, new.start);
        self.merge_at(&mmap, new.end);
        Ok(())
    }

    /// Enters at `start` the mappings of `old`. Mappings that were entered before a
    /// failure stay.
    fn copy_to(
        &self,
        mmap: &MmapWriteGuard<'_>,
        old: &Range<usize>,
        start: usize,
    ) -> Result<(), MmError> {
        let mut at = old.start;
        while at < old.end {
            let vma = self.find(mmap, at).ok_or(MmError::Unmapped)?;
            let part = at..vma.end().min(old.end);
            let place = start + (part.start - old.start);
            let attributes = attributes_of_part(mmap, vma, &part);
            let place = place..place + part.len();
            attributes.check_alignment(&place)?;
            self.add(mmap, place, attributes)?;
            at = part.end;
        }
        Ok(())
    }
}
