//! Linux's read-ahead for mappings, as its 6.18 has it in `mm/filemap.c`: the
//! baseline of document 003, and its two patches.
//!
//! One number a file, `mmap_miss`, goes up with each page that a fault does not
//! find, and down with pages that faults find. While it is low, a miss reads a whole
//! window around its page; above [`LOTS`] it reads the page alone.
//!
//! | a fault | baseline | first patch | second patch |
//! |---|---|---|---|
//! | misses | +1, up to [`MOST`] | same | same |
//! | maps cached pages | -1 for each page of its 64 KiB | -1 if its own page is one | as the others, but nothing if TRIED |
//! | finds a cached page that the above did not map | -1 | same | same |
//!
//! Pages of the working set (evicted, and soon read again) are no hits: where
//! memory thrashes, read-ahead is to stop.
//!
//! One page of each window, its *marker*, is not mapped by the faults around
//! it: a fault on it begins the next window. It leaves out of Linux: its
//! windows end at borders of large folios, and a sequential reader under
//! `Advice::Sequential` looks back for how long it has been one.
//!
//! Locks: none here; protected by a lock of the page cache that owns it. No
//! heap, no I/O.

use core::ops::Range;

use crate::page::Advice;
use crate::policy::MissAccounting;

/// `MMAP_LOTSAMISS`: more misses than this, and read-ahead stops.
pub const LOTS: u16 = 100;

/// The most misses that are remembered: so many hits bring read-ahead back.
pub const MOST: u16 = 10 * LOTS;

/// Pages to read: Linux's `page_cache_ra_order` is asked for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaWindow {
    /// First page.
    pub start: u64,
    /// First page past the end; at most the file's.
    pub end: u64,
    /// The page whose fault begins the next window; may be past `end`.
    pub marker: u64,
}

impl RaWindow {
    /// The pages.
    pub fn pages(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// The cached pages that a fault has mapped, in its 64 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Pages that are no part of the working set; those that were mapped
    /// before are counted too.
    pub pages: u16,
    /// True if the page of the fault is one of them.
    pub own: bool,
}

/// The state of one file: the part of Linux's `file_ra_state` that mappings use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MmapMiss {
    /// The last window's first page.
    start: u64,
    /// Its pages.
    size: u32,
    /// Pages from its marker to its end.
    async_size: u32,
    /// The largest window, and the window of a miss.
    ra_pages: u32,
    /// Misses less hits.
    mmap_miss: u16,
}

impl MmapMiss {
    /// No fault seen yet; windows of `ra_pages` pages, at least four.
    pub const fn new(ra_pages: u32) -> Self {
        assert!(ra_pages >= 4, "a window has a quarter");
        Self {
            start: 0,
            size: 0,
            async_size: 0,
            ra_pages,
            mmap_miss: 0,
        }
    }

    /// Misses less hits.
    pub fn mmap_miss(&self) -> u16 {
        self.mmap_miss
    }

    /// The largest window, in pages.
    pub fn ra_pages(&self) -> u32 {
        self.ra_pages
    }

    /// A fault did not find page `index` of a file of `file_pages`. Returns the window to
    /// read around it; none: the page alone. (`do_sync_mmap_readahead`)
    pub fn miss(&mut self, index: u64, advice: Advice, file_pages: u64) -> Option<RaWindow> {
        let size = self.ra_pages;
        match advice {
            Advice::Random => return None,
            Advice::Sequential => return Some(self.begin(index, size, size / 2, file_pages)),
            Advice::Normal => {}
        }
        self.mmap_miss = (self.mmap_miss + 1).min(MOST);
        if self.mmap_miss > LOTS {
            return None;
        }
        let start = index.saturating_sub(u64::from(size / 2));
        Some(self.begin(start, size, size / 4, file_pages))
    }

    /// A fault has mapped the cached pages. (`filemap_map_pages`)
    pub fn mapped(&mut self, found: Found, accounting: MissAccounting, tried: bool) {
        use MissAccounting::{Both, FaultingAddress, IgnoreTried};
        if tried && matches!(accounting, IgnoreTried | Both) {
            return;
        }
        let hits = match accounting {
            FaultingAddress | Both => u16::from(found.own),
            _ => found.pages,
        };
        self.mmap_miss = self.mmap_miss.saturating_sub(hits);
    }

    /// A fault that has not waited found its page cached, read, and not to be
    /// mapped with others: the marker. (`do_async_mmap_readahead`)
    pub fn hit(&mut self, advice: Advice) {
        if advice != Advice::Random {
            self.mmap_miss = self.mmap_miss.saturating_sub(1);
        }
    }

    /// True if a marker at page `index` is that of the last window.
    pub fn expects(&self, index: u64) -> bool {
        index == self.start + u64::from(self.size - self.async_size)
    }

    /// A fault found the marker at page `index`. The next window, if there is
    /// to be one: behind the last, or at `next_miss`, the first page after
    /// `index` that is not cached, where the marker is of a window before.
    /// (`page_cache_async_ra`)
    pub fn marker(&mut self, index: u64, next_miss: u64, file_pages: u64) -> Option<RaWindow> {
        let most = self.ra_pages;
        let (start, size) = if self.expects(index) {
            (self.start + u64::from(self.size), self.size)
        } else {
            let cached = next_miss - index;
            if cached > u64::from(most) {
                return None;
            }
            (next_miss, cached as u32 + most)
        };
        let size = next_size(size, most);
        Some(self.begin(start, size, size, file_pages)).filter(|window| window.start < window.end)
    }

    fn begin(&mut self, start: u64, size: u32, async_size: u32, file_pages: u64) -> RaWindow {
        (self.start, self.size, self.async_size) = (start, size, async_size);
        let end = start + u64::from(size);
        RaWindow {
            start: start.min(file_pages),
            end: end.min(file_pages),
            marker: end - u64::from(async_size),
        }
    }
}

/// How windows grow. (`get_next_ra_size`)
fn next_size(size: u32, most: u32) -> u32 {
    if size < most / 16 {
        4 * size
    } else if size <= most / 2 {
        2 * size
    } else {
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MissAccounting::{Baseline, Both, FaultingAddress, IgnoreTried};

    const RA: u32 = 2048;
    const FILE: u64 = 1 << 20;
    const ALL: [MissAccounting; 4] = [Baseline, FaultingAddress, IgnoreTried, Both];

    fn missed(times: u16) -> MmapMiss {
        let mut state = MmapMiss::new(RA);
        for _ in 0..times {
            state.miss(500_000, Advice::Normal, FILE);
        }
        state
    }

    fn found(pages: u16, own: bool) -> Found {
        Found { pages, own }
    }

    #[test]
    fn a_miss_reads_around_itself() {
        let mut state = MmapMiss::new(RA);
        let window = state.miss(5000, Advice::Normal, FILE).unwrap();
        assert_eq!(window.pages(), 3976..6024);
        assert_eq!(window.marker, 6024 - 512);
        let window = state.miss(10, Advice::Normal, FILE).unwrap();
        assert_eq!((window.pages(), window.marker), (0..2048, 1536));
        let window = state.miss(FILE - 5, Advice::Normal, FILE).unwrap();
        assert_eq!(window.pages(), FILE - 1029..FILE);
        let window = state.miss(50, Advice::Normal, 60).unwrap();
        assert_eq!(window.pages(), 0..60);
    }

    #[test]
    fn more_than_lots_of_misses_end_read_ahead() {
        let mut state = missed(LOTS - 1);
        assert!(state.miss(9, Advice::Normal, FILE).is_some(), "the 100th");
        assert!(state.miss(9, Advice::Normal, FILE).is_none(), "the 101st");
        for accounting in ALL {
            let mut state = missed(LOTS + 1);
            state.mapped(found(1, true), accounting, false);
            // The next one is the 101st again.
            assert!(state.miss(9, Advice::Normal, FILE).is_none());
            state.mapped(found(2, true), accounting, false);
            state.mapped(found(2, true), accounting, false);
            assert!(state.miss(9, Advice::Normal, FILE).is_some());
        }
    }

    #[test]
    fn misses_are_remembered_up_to_a_cap() {
        assert_eq!(missed(MOST - 1).mmap_miss(), 999);
        assert_eq!(missed(MOST).mmap_miss(), 1000);
        assert_eq!(missed(MOST + 500).mmap_miss(), 1000);
    }

    #[test]
    fn hits_do_not_go_below_nothing() {
        for accounting in ALL {
            let mut state = missed(3);
            for _ in 0..4 {
                state.mapped(found(16, true), accounting, false);
            }
            assert_eq!(state.mmap_miss(), 0, "{accounting:?}");
        }
        let mut state = missed(1);
        state.hit(Advice::Normal);
        state.hit(Advice::Normal);
        assert_eq!(state.mmap_miss(), 0);
    }

    /// Credits of each accounting, as (pages found, own page among them,
    /// TRIED).
    #[test]
    fn each_accounting_has_its_hits() {
        let cases = [
            ((16, true, false), [16, 1, 16, 1]),
            ((16, true, true), [16, 1, 0, 0]),
            // Neighbours of a page that is not cached, or of the working set.
            ((15, false, false), [15, 0, 15, 0]),
            ((15, false, true), [15, 0, 0, 0]),
            // All of the working set.
            ((0, false, false), [0, 0, 0, 0]),
        ];
        for ((pages, own, tried), hits) in cases {
            for (accounting, hits) in ALL.into_iter().zip(hits) {
                let mut state = missed(50);
                state.mapped(found(pages, own), accounting, tried);
                assert_eq!(state.mmap_miss(), 50 - hits, "{accounting:?} {tried}");
            }
        }
    }

    #[test]
    fn advice_comes_before_counting() {
        let mut state = missed(7);
        assert_eq!(state.miss(70, Advice::Random, FILE), None);
        state.hit(Advice::Random);
        let window = state.miss(70, Advice::Sequential, FILE).unwrap();
        assert_eq!((window.pages(), window.marker), (70..2118, 70 + 1024));
        assert_eq!(state.mmap_miss(), 7);
        let mut state = missed(LOTS + 1);
        assert!(state.miss(70, Advice::Sequential, FILE).is_some());
    }

    #[test]
    fn markers_lead_from_window_to_window() {
        let mut state = MmapMiss::new(RA);
        let first = state.miss(0, Advice::Normal, FILE).unwrap();
        let second = state.marker(first.marker, u64::MAX, FILE).unwrap();
        assert_eq!((second.pages(), second.marker), (2048..4096, 2048));
        let third = state.marker(second.marker, u64::MAX, FILE).unwrap();
        assert_eq!((third.pages(), third.marker), (4096..6144, 4096));
        // To the end of the file, and not beyond it.
        let last = state.marker(third.marker, u64::MAX, 7000).unwrap();
        assert_eq!(last.pages(), 6144..7000);
        assert_eq!(state.marker(last.marker, u64::MAX, 7000), None);
    }

    #[test]
    fn a_marker_of_an_old_window_goes_on_where_nothing_is_cached() {
        let mut state = missed(1);
        let window = state.marker(100, 300, FILE).unwrap();
        assert_eq!(window.pages(), 300..300 + u64::from(RA));
        assert_eq!(window.marker, 300);
        let before = state;
        assert_eq!(state.marker(900_000, 900_000 + 2049, FILE), None);
        assert_eq!(state, before, "all that a window could read is there");
    }

    #[test]
    fn windows_grow_to_the_largest() {
        let sizes = [16, 127, 128, 1024, 1025, 2048].map(|size| next_size(size, RA));
        assert_eq!(sizes, [64, 508, 256, 2048, 2048, 2048]);
    }
}
