//! Making one VMA of two neighbours that agree.

use super::mmap_lock::{MmapHeld, MmapWriteGuard};
use super::space::{AddressSpace, pages};
use super::vma::{Attributes, Vma};

/// True if `upper` begins where `lower` ends, in memory and in the backing,
/// and they agree in all else.
pub(super) fn mergeable(mmap: &impl MmapHeld, lower: &Vma, upper: &Vma) -> bool {
    lower.end() == upper.start()
        && continues(
            &lower.attributes(mmap),
            pages(&lower.range()),
            &upper.attributes(mmap),
        )
}

/// True if `upper` continues `lower`, `pages` further on.
pub(super) fn continues(lower: &Attributes, pages: u64, upper: &Attributes) -> bool {
    // Every field is named, so that a new one is not forgotten here.
    let Attributes {
        backing,
        pgoff,
        protection,
        advice,
    } = lower;
    pgoff.checked_add(pages) == Some(upper.pgoff)
        && *backing == upper.backing
        && *protection == upper.protection
        && *advice == upper.advice
}

impl AddressSpace {
    /// Merges the VMAs that meet at `at`, if there are two and they agree. The
    /// lower one stays. Needs no memory.
    ///
    /// ```text
    ///     at
    ///   AAAABB      AAAABB        AA|AABB      AAAABB
    /// ```
    pub(super) fn merge_at(&self, mmap: &MmapWriteGuard<'_>, at: usize) {
        let Some(before) = at.checked_sub(1) else {
            return;
        };
        let (Some(lower), Some(upper)) = (self.find(mmap, before), self.find(mmap, at)) else {
            return;
        };
        if upper.start() == at && mergeable(mmap, lower, upper) {
            // Longer before the other goes, so that a lookup finds the lower
            // one, write-locked, whenever it no longer finds the upper one.
            self.set_end(mmap, lower, upper.end());
            self.take_out(mmap, upper);
        }
    }
}
