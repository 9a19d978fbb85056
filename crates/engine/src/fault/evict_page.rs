//! Taking one page out of its window.

use crate::PAGE_SIZE;
use crate::anon::Anonymous;
use crate::cache::PageCache;
use crate::mm::AddressSpace;
use crate::reclaim::anonymous::Taken;

impl AddressSpace {
    /// Evicts the page at `addr`, so that the next touch finds it missing. It stays if its bytes cannot be written anywhere, or while it
    /// is locked in memory or pinned. Waits until whoever is at work on it is done.
    pub fn evict_page(&self, addr: usize) {
        let Ok(vma) = self.lock_vma_or_mmap_lock(addr) else {
            return;
        };
        let distance = addr - vma.vma().start();
        let (backing, pgoff) =
            vma.with(|attributes| (attributes.backing.clone(), attributes.pgoff));
        // The lock is not held over I/O: the reference keeps the memory.
        drop(vma);
        let page = |addr: usize| addr & !(PAGE_SIZE - 1)..(addr & !(PAGE_SIZE - 1)) + PAGE_SIZE;
        if let Some(anon) = Anonymous::shown(&backing) {
            let page = page(anon.window.address(pgoff, distance));
            anon.node.take_anonymous(anon, page, Taken::Evicted);
        } else if let Some(cache) = PageCache::shown(&backing) {
            cache.invalidate(page(cache.window.address(pgoff, distance)));
        }
    }
}
