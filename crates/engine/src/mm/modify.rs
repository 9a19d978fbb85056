//! Changing the attributes of a range, for `mprotect` and `madvise`.
//!
//! ```text
//!      ....         before    after (B stands for A with the change made)
//!    AAAAAAAA       AAAAAAAA  AABBBBAA   two new VMAs
//!    AAAABBBB       AAAABBBB  AABBBBBB   A is split, its end merges into B
//!    BBAABBAA       BBAABBAA  BBBBBBAA   parts with these attributes are left alone
//! ```

use core::ops::Range;

use super::mmap_lock::MmapWriteGuard;
use super::pending_flush::PendingFlush;
use super::space::{AddressSpace, MmError, check_range};
use super::vma::{Attributes, Vma};

impl AddressSpace {
    /// Makes `change` to the attributes of all that is mapped in `range`. It
    /// leaves backing and `pgoff` as they are.
    pub(super) fn modify(
        &self,
        range: Range<usize>,
        change: impl Fn(&mut Attributes),
    ) -> Result<(), MmError> {
        check_range(&range)?;
        let mmap = self.write_lock(&range);
        self.check_cuts(&mmap, &range)?;
        let mut pending = PendingFlush::default();
        let mut at = range.start;
        let mut hole = false;
        while at < range.end {
            let vma = self.find_from(&mmap, at);
            let Some(vma) = vma.filter(|vma| vma.start() < range.end) else {
                hole = true;
                break;
            };
            hole |= vma.start() > at;
            let part = vma.start().max(at)..vma.end().min(range.end);
            let mut attributes = vma.attributes(&mmap);
            change(&mut attributes);
            let done = if attributes == vma.attributes(&mmap) {
                Ok(())
            } else {
                if attributes.protection < vma.attributes(&mmap).protection {
                    pending.add(&attributes.backing);
                }
                self.modify_part(&mmap, vma, &part, &change)
            };
            // With the one below, which may be changed; or with the rest of
            // itself, if the second of two splits failed.
            self.merge_at(&mmap, part.start);
            done?;
            at = part.end;
        }
        self.merge_at(&mmap, at);
        if hole { Err(MmError::Unmapped) } else { Ok(()) }
    }

    fn modify_part<'a>(
        &'a self,
        mmap: &MmapWriteGuard<'_>,
        mut vma: &'a Vma,
        part: &Range<usize>,
        change: impl Fn(&mut Attributes),
    ) -> Result<(), MmError> {
        if vma.start() < part.start {
            vma = self.split(mmap, vma, part.start)?;
        }
        if vma.end() > part.end {
            self.split(mmap, vma, part.end)?;
        }
        vma.start_write(mmap);
        let mut attributes = vma.attributes(mmap);
        if let Some(ops) = attributes.backing.ops() {
            ops.unshare(attributes.pgoff, vma.range().len());
        }
        change(&mut attributes);
        vma.set_attributes(mmap, attributes);
        Ok(())
    }
}
