//! Taking memory out of a space whose pages stay where they are: they are somebody else's from then on.

use core::ops::Range;

use super::mmap_lock::MmapWriteGuard;
use super::pending_flush::PendingFlush;
use super::space::{AddressSpace, MmError, check_range};

impl AddressSpace {
    /// Takes `range` out, all of which is mapped. `give` is called once no fault is in progress under it and none can
    /// begin; where it succeeds, the pages are paid back and not zapped. Where it fails, nothing has changed.
    ///
    /// ```text
    ///     ....         AAAAAAAA  →  AA----AA     one new VMA
    /// ```
    pub(crate) fn hand_over<E: From<MmError>>(
        &self,
        range: &Range<usize>,
        give: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        check_range(range)?;
        let mmap = self.write_lock(range);
        self.check_cuts(&mmap, range)?;
        let cut = self.cut_out(&mmap, range);
        let given = cut.map_err(E::from).and_then(|()| {
            self.for_each_vma(&mmap, range.clone(), |vma| vma.start_write(&mmap));
            give()
        });
        if given.is_err() {
            self.merge_at(&mmap, range.end);
            self.merge_at(&mmap, range.start);
            return given;
        }
        let mut pending = PendingFlush::default();
        let taken = self.take_out_range(&mmap, range.clone(), |piece, attributes| {
            if let Some(ops) = attributes.backing.ops() {
                ops.handed_over(attributes.pgoff, piece.len());
            }
            pending.add(&attributes.backing);
        });
        taken.expect("whole VMAs go without memory");
        Ok(())
    }

    /// Lets VMAs begin and end where a range does; an error if it is not all mapped. VMAs that were cut before a failure stay
    /// cut.
    fn cut_out(&self, mmap: &MmapWriteGuard<'_>, range: &Range<usize>) -> Result<(), MmError> {
        let mut at = range.start;
        while at < range.end {
            let mut vma = self.find(mmap, at).ok_or(MmError::Unmapped)?;
            if vma.start() < at {
                vma = self.split(mmap, vma, at)?;
            }
            if vma.end() > range.end {
                self.split(mmap, vma, range.end)?;
            }
            at = vma.end();
        }
        Ok(())
    }
}
