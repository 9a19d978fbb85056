//! `munmap` and `exit`: taking mappings out.

use core::ops::Range;

use super::mmap_lock::MmapWriteGuard;
use super::pending_flush::PendingFlush;
use super::space::{AddressSpace, MmError, check_range};
use super::split::attributes_of_part;
use super::vma::Attributes;
use crate::PAGE_SIZE;
use crate::mmu::gather::MmuGather;

impl AddressSpace {
    /// Unmaps `range`; holes in it are no error.
    ///
    /// ```text
    ///     ..          AAAA  →  A--A     one new VMA
    ///   ..            AAAA  →  --AA     begins higher
    ///       ..        AAAA  →  AA--     ends lower
    ///   ....          ABBC  →  ----     all go
    /// ```
    ///
    /// Calls `removed` with each piece that was mapped, by address, once no
    /// fault is in progress under it and none can begin; `mmap_lock` is still
    /// held, for write or shared by verbs. `removed` must not use the space. The pages of anonymous
    /// memory are zapped, in one go, and paid back before this returns; those
    /// of files stay cached.
    pub fn munmap(
        &self,
        range: Range<usize>,
        mut removed: impl FnMut(Range<usize>, Attributes),
    ) -> Result<(), MmError> {
        check_range(&range)?;
        if let Some(mmap) = self.mmap_lock.share()
            && let Some(()) = self.munmap_shared(&mmap, &range, &mut removed)
        {
            return Ok(());
        }
        let mmap = self.write_lock(&range);
        self.munmap_locked(&mmap, range, removed)
    }

    /// Unmaps everything, and calls `removed` as `munmap` does. The space can
    /// be dropped then, or used again.
    pub fn exit(&self, removed: impl FnMut(Range<usize>, Attributes)) {
        self.exit_locked(&self.write_lock(&(0..usize::MAX)), removed);
    }

    pub(super) fn exit_locked(
        &self,
        mmap: &MmapWriteGuard<'_>,
        removed: impl FnMut(Range<usize>, Attributes),
    ) {
        let all = 0..usize::MAX & !(PAGE_SIZE - 1);
        let done = self.munmap_locked(mmap, all, removed);
        done.expect("whole VMAs go without memory");
        assert!(self.tree.is_empty());
    }

    fn munmap_locked(
        &self,
        mmap: &MmapWriteGuard<'_>,
        range: Range<usize>,
        mut removed: impl FnMut(Range<usize>, Attributes),
    ) -> Result<(), MmError> {
        self.check_cuts(mmap, &range)?;
        let mut gather = MmuGather::new();
        let mut pending = PendingFlush::default();
        self.take_out_range(mmap, range, |piece, attributes| {
            if let Some(ops) = attributes.backing.ops()
                && !ops.removed(attributes.pgoff, piece.len(), &mut gather)
            {
                pending.add(&attributes.backing);
            }
            removed(piece, attributes);
        })
    }

    /// Takes VMAs and parts of VMAs out; their pages stay. Changes nothing if
    /// it fails.
    ///
    /// All VMAs of the range are write-locked before `removed` is called for the first: `removed` may
    /// begin the zap of a page table, which ends only when all of them are out; and with `retry=held`
    /// a fault under another VMA of the range may wait for that zap with its VMA read-locked.
    pub(super) fn take_out_range(
        &self,
        mmap: &MmapWriteGuard<'_>,
        range: Range<usize>,
        mut removed: impl FnMut(Range<usize>, Attributes),
    ) -> Result<(), MmError> {
        self.for_each_vma(mmap, range.clone(), |vma| vma.start_write(mmap));
        // First the step that can fail: a VMA that goes on above the range.
        let mut upper_piece = None;
        if let Some(vma) = self.find(mmap, range.end - 1)
            && vma.end() > range.end
        {
            if vma.start() < range.start {
                self.split(mmap, vma, range.end)?;
            } else {
                let piece = vma.start()..range.end;
                let attributes = attributes_of_part(mmap, vma, &piece);
                self.set_start(mmap, vma, range.end)?;
                upper_piece = Some((piece, attributes));
            }
        }
        if let Some(vma) = self.find(mmap, range.start)
            && vma.start() < range.start
        {
            let piece = range.start..vma.end();
            let attributes = attributes_of_part(mmap, vma, &piece);
            self.set_end(mmap, vma, range.start);
            removed(piece, attributes);
        }
        while let Some(vma) = self.find_from(mmap, range.start)
            && vma.start() < range.end
        {
            let piece = vma.range();
            assert!(piece.end <= range.end);
            removed(piece, self.take_out(mmap, vma));
        }
        if let Some((piece, attributes)) = upper_piece {
            removed(piece, attributes);
        }
        Ok(())
    }
}
