//! `fork`: a second space that begins as a copy of the first.

use super::backing::Backing;
use super::mmap_lock::MmapWriteGuard;
use super::space::{AddressSpace, MmError};
use crate::mmu::MmuError;
use std::collections::BTreeMap;

/// Why a space was not forked. Nothing is left of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkError {
    /// The budget has no room for the copy of a resident page, or for a table
    /// of it, and nothing can be evicted. Copies are paid for at the
    /// fork (see [`anon`](crate::anon)).
    Budget,
    /// The page tables cannot show the copy.
    Mmu(MmuError),
    /// The slabs have no VMA or tree node left.
    Mappings,
}

impl From<MmError> for ForkError {
    fn from(error: MmError) -> Self {
        assert!(error == MmError::NoMemory, "a copy of a mapping: {error:?}");
        Self::Mappings
    }
}

impl AddressSpace {
    /// Maps in `child`, which is empty, the mappings of this space, at the same
    /// addresses. Files are shared; anonymous memory is copied when either
    /// space writes to it, and the copies are charged now (see [`anon`](crate::anon)).
    /// On failure `child` is empty again, and nothing of it is charged.
    ///
    /// Takes `mmap_lock` of both spaces and, as Linux's `dup_mmap` does,
    /// write-locks every VMA: the copy shows one moment, and a fault in
    /// progress is waited for.
    ///
    /// # Panics
    /// If `child` is not empty, or is this space.
    pub fn fork(&self, child: &AddressSpace) -> Result<(), ForkError> {
        assert!(self.id() != child.id(), "a space is no child of its own");
        let mmap = self.mmap_lock.write();
        let child_mmap = child.mmap_lock.write_in_fork(&mmap);
        assert!(child.tree.is_empty(), "fork into a space that has mappings");
        self.for_each_vma(&mmap, 0..usize::MAX, |vma| vma.start_write(&mmap));
        let copied = self.copy_vmas(&mmap, child, &child_mmap);
        if copied.is_err() {
            child.exit_locked(&child_mmap, |_, _| {});
        }
        copied
    }

    fn copy_vmas(
        &self,
        mmap: &MmapWriteGuard<'_>,
        child: &AddressSpace,
        child_mmap: &MmapWriteGuard<'_>,
    ) -> Result<(), ForkError> {
        // By the object that has the pages: several VMAs may show one.
        let mut copies: BTreeMap<*const (), Backing> = BTreeMap::new();
        let mut address = 0;
        while let Some(vma) = self.find_from(mmap, address) {
            let mut attributes = vma.attributes(mmap);
            if let Some(ops) = attributes.backing.ops() {
                let object = ops.object();
                let copy = match copies.get(&object) {
                    Some(copy) => Some(copy.clone()),
                    None => ops.fork()?.inspect(|copy| {
                        copy.ops().inspect(|ops| _ = ops.claim(child.id()));
                        copies.insert(object, copy.clone());
                    }),
                };
                if let Some(copy) = copy {
                    attributes.backing = copy;
                }
            }
            child.add(child_mmap, vma.range(), attributes)?;
            address = vma.end();
        }
        Ok(())
    }
}
