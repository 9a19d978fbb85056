//! Whether reclaim takes from files or from private memory.
//!
//! As in Linux's `get_scan_count`: in proportion to how much there is of each, and
//! the other way round to how much of it came back soon after it was evicted.

use crate::cache::Node;
use sync::atomic::{AtomicU64, Ordering};

/// Refaults of late, of files and of private memory.
#[derive(Debug, Default)]
pub struct Balance {
    files: AtomicU64,
    anonymous: AtomicU64,
}

impl Balance {
    /// A page of a file came back; numbers stay below about `most`.
    pub(crate) fn file_came_back(&self, most: u64) {
        Self::count(&self.files, &self.anonymous, most);
    }

    /// A page of private memory came back.
    pub(crate) fn anonymous_came_back(&self, most: u64) {
        Self::count(&self.anonymous, &self.files, most);
    }

    // Relaxed throughout: numbers to compare, and races lose little.
    fn count(own: &AtomicU64, other: &AtomicU64, most: u64) {
        if own.fetch_add(1, Ordering::Relaxed) >= most {
            own.store(most / 2, Ordering::Relaxed);
            other.store(other.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }
}

impl Node {
    /// True if the next batch is to be of private memory, where both have something.
    pub(crate) fn takes_anonymous_first(&self) -> bool {
        if self.private.windows.is_empty() {
            return false;
        }
        let lists = self.lru.lists.pages();
        let files = (lists.readahead + lists.inactive + lists.active) as u64;
        let anonymous = self.anonymous_pages() as u64;
        let cost = |refaults: &AtomicU64| refaults.load(Ordering::Relaxed) + 64;
        // The kind that costs less to take, in proportion to its size.
        anonymous * cost(&self.balance.files) >= files * cost(&self.balance.anonymous)
    }
}
