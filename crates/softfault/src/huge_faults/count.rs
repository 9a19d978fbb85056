//! The counters of a map, and of all maps of the process.

use super::backing::HugeBacking;
use core::sync::atomic::{AtomicU64, Ordering};

/// Counters of a map of huge memory, in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HugeMapStats {
    /// Touches of a missing page that were served.
    pub faults: u64,
    /// Pages that were added to the memory: pages that this map requested, and sometimes a page that another
    /// map got at the same moment.
    pub pages: u64,
    /// Times that the pool had no page, or the machine no memory.
    pub pool_empty: u64,
    /// Touches that could not be served, for this reason or because they were past the end.
    pub failed: u64,
}

/// Counters of all huge memory of the process. [`Stats::huge`](crate::Stats::huge)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HugeStats {
    /// Maps of pages from the pool, now.
    pub hugetlb_maps: u64,
    /// Maps of memory with transparent huge pages, now.
    pub transparent_maps: u64,
    /// Maps of base pages, now.
    pub base_page_maps: u64,
    /// Total length of these maps now, in huge pages, touched or not; ordinary memory counts in
    /// units of a huge page.
    pub mapped_pages: u64,
    /// Pages of these that the maps reserved in the pool.
    pub reserved_pages: u64,
    /// Touches of a missing page that were served.
    pub faults: u64,
    /// Pages that were requested, as in [`HugeMapStats::pages`].
    pub pages: u64,
    /// Times that the pool had no page, or the machine no memory.
    pub pool_empty: u64,
    /// Touches that could not be served.
    pub failed: u64,
}

/// Counters of a map, or of all. Relaxed throughout: numbers and nothing else.
#[derive(Default)]
pub(crate) struct Counters {
    faults: AtomicU64,
    pages: AtomicU64,
    pool_empty: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    pub(super) const fn new() -> Self {
        Self {
            faults: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            pool_empty: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(crate) fn read(&self) -> HugeMapStats {
        HugeMapStats {
            faults: self.faults.load(Ordering::Relaxed),
            pages: self.pages.load(Ordering::Relaxed),
            pool_empty: self.pool_empty.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    pub(super) fn clear(&self) {
        for counter in [&self.faults, &self.pages, &self.pool_empty, &self.failed] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Those of the process.
static ALL: Counters = Counters::new();
static MAPS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static MAPPED: AtomicU64 = AtomicU64::new(0);
static RESERVED: AtomicU64 = AtomicU64::new(0);

fn add(own: &Counters, which: impl Fn(&Counters) -> &AtomicU64) {
    for counters in [own, &ALL] {
        which(counters).fetch_add(1, Ordering::Relaxed);
    }
}

/// A touch was served.
pub(super) fn fault(own: &Counters) {
    add(own, |all| &all.faults);
}

/// A page was added to the memory.
pub(super) fn page(own: &Counters) {
    add(own, |all| &all.pages);
}

/// No page was available.
pub(super) fn pool_empty(own: &Counters) {
    add(own, |all| &all.pool_empty);
}

/// A touch could not be served.
pub(super) fn failed(own: &Counters) {
    add(own, |all| &all.failed);
}

/// So many pages were mapped, some reserved.
pub(crate) fn map(backing: HugeBacking, pages: u64, reserved: u64) {
    MAPS[backing as usize].fetch_add(1, Ordering::Relaxed);
    MAPPED.fetch_add(pages, Ordering::Relaxed);
    RESERVED.fetch_add(reserved, Ordering::Relaxed);
}

/// The same were unmapped.
pub(crate) fn unmap(backing: HugeBacking, pages: u64, reserved: u64) {
    MAPS[backing as usize].fetch_sub(1, Ordering::Relaxed);
    MAPPED.fetch_sub(pages, Ordering::Relaxed);
    RESERVED.fetch_sub(reserved, Ordering::Relaxed);
}

/// In a child: starts its counters anew. Its maps are those that it inherited.
pub(super) fn fork_child() {
    ALL.clear();
}

impl HugeStats {
    /// Those of this process, which need no engine.
    pub fn now() -> Self {
        let [hugetlb_maps, transparent_maps, base_page_maps] =
            MAPS.each_ref().map(|maps| maps.load(Ordering::Relaxed));
        let all = ALL.read();
        Self {
            hugetlb_maps,
            transparent_maps,
            base_page_maps,
            mapped_pages: MAPPED.load(Ordering::Relaxed),
            reserved_pages: RESERVED.load(Ordering::Relaxed),
            faults: all.faults,
            pages: all.pages,
            pool_empty: all.pool_empty,
            failed: all.failed,
        }
    }
}
