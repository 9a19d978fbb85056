//! Stale translations of a space.
//!
//! Page tables of our own belong to windows, and cores that access the space buffer
//! the translations of its VMAs. A verb that takes pages or rights away
//! (`munmap`, `mprotect`, `mremap`) flushes them before it lets `mmap_lock`
//! go. A zap and a fork do that by themselves.

use crate::mm::Backing;
use crate::mmu::Mmu;
use sync::Arc;

/// The page tables whose buffers are to be flushed: at the end, once for all
/// VMAs that have the same.
#[derive(Default)]
pub(super) struct PendingFlush(Option<Arc<dyn Mmu>>);

impl PendingFlush {
    /// A VMA of this backing shows less than before, or elsewhere.
    pub(super) fn add(&mut self, backing: &Backing) {
        let Some(mmu) = backing.ops().and_then(|ops| ops.mmu()) else {
            return;
        };
        if !self.0.as_ref().is_some_and(|known| Arc::ptr_eq(known, mmu)) {
            self.flush();
            self.0 = Some(mmu.clone());
        }
    }

    fn flush(&mut self) {
        if let Some(mmu) = self.0.take() {
            mmu.flush_tlbs();
        }
    }
}

impl Drop for PendingFlush {
    fn drop(&mut self) {
        self.flush();
    }
}
