//! Folios of private memory that are being read back, or were read ahead: Linux's swap cache.

use super::view::{PrivateFile, View};
use crate::PAGE_SIZE;
use crate::cache::window::Window;
use crate::cache::{Node, OnTruncate, PageCache};
use crate::store::StoreError;
use core::ops::Range;
use sync::Arc;

/// A page cache whose store says where each page is: in which slot, or where in a file.
pub(crate) struct SwapCache {
    cache: Arc<PageCache>,
    view: Arc<View>,
}

impl SwapCache {
    /// Of the memory that this window shows.
    pub(super) fn new(
        node: Arc<Node>,
        view: View,
        window: Arc<Window>,
        on_truncate: OnTruncate,
    ) -> Self {
        let view = Arc::new(view);
        let cache = PageCache::private_of(node, view.clone(), window, on_truncate);
        Self { cache, view }
    }

    /// Serves faults as a file's does.
    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// Where pages come from that were never touched.
    pub(super) fn private_file(&self) -> Option<&PrivateFile> {
        self.view.private_file.as_ref()
    }

    pub(super) fn on_truncate(&self) -> OnTruncate {
        self.cache.on_truncate
    }

    /// True if nobody waits for a page.
    pub(super) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.cache) == 1
    }

    /// Removes the folios of a range of addresses, read or being read.
    pub(super) fn forget(&self, range: Range<usize>) {
        self.cache.invalidate(range);
    }

    /// The same of all, for good.
    pub(super) fn forget_all(&self) {
        self.cache.evict_all();
    }

    /// True if a page is in the cache, read or being read.
    pub(super) fn is_read(&self, page: usize) -> bool {
        let addr = self.cache.address((page * PAGE_SIZE) as u64);
        self.cache.find(addr).is_some()
    }

    /// True if the bytes of an absent page are to be read from a file.
    pub(crate) fn is_of_file(&self, page: usize) -> Result<bool, StoreError> {
        let Some(private_file) = self.private_file() else {
            return Ok(false);
        };
        // A page that was read while the file had it is in the cache until it is mapped.
        Ok(private_file.is_data(page)? || self.is_read(page))
    }
}
