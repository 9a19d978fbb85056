//! Dropping a leaf that is shared, and taking pages out of a mapping: Linux's
//! `huge_pmd_unshare`.

use super::HugePool;
use super::file::HugeFile;
use super::tables::{Slot, Tables};
use crate::lock::WriteGuard;
use crate::policy::LeftLeaf;
use core::ops::Range;

/// Nobody shares, and no fault of the mapping is under way: the share lock, but for the
/// baseline and where this thread has had it from before, and `i_mmap`, both for writing.
pub(super) struct Unsharing<'a> {
    pub(super) _share: Option<&'a WriteGuard<'a>>,
    pub(super) _i_mmap: &'a WriteGuard<'a>,
}

/// The fate of pages that are taken out of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// The file keeps them.
    Stay,
    /// They are taken out of the file next.
    Go,
}

impl HugePool {
    /// Pages were taken out of leaves: counts them, once nobody uses them any more.
    fn zapped(&self, pages: &[u32]) {
        if !pages.is_empty() {
            self.tables.flush_tlbs();
            pages.iter().for_each(|&page| self.count_unmapped(page));
        }
    }
}

impl HugeFile {
    /// Takes `indexes` out of a mapping. Where others have the same leaf, the mapping
    /// drops all of it, and faults its other pages in again. A leaf that only it has
    /// loses the pages, or, where they are to stay in the file, is left with its span as it
    /// is (but not with `left=freed`).
    ///
    /// When a page counts as mapped nowhere, no core uses it any more: the thread that takes it
    /// out of the file needs no flush of its own.
    pub(super) fn zap(
        &self,
        tables: &Tables,
        indexes: &Range<u64>,
        pages: Pages,
        _locks: &Unsharing<'_>,
    ) {
        let indexes = tables.part(indexes);
        let stays = pages == Pages::Stay && self.pool.left == LeftLeaf::Kept;
        let mut zapped = Vec::new();
        for (span, part) in self.pool.by_span(&indexes) {
            let mut shared = self.spans[span as usize].0.lock();
            let mut place = tables.slot(span).lock();
            let Some(slot) = &*place else { continue };
            if let Some(class) = slot.class {
                let known = shared[class as usize].as_mut();
                let known = known.expect("a leaf that is shared is known");
                if known.sharers > 1 || stays {
                    known.sharers -= 1;
                    self.pool.stats.unshared.add(1);
                    *place = None;
                    continue;
                }
            }
            if slot.leaf.zap(part, &mut zapped) {
                if let Some(class) = slot.class {
                    shared[class as usize] = None;
                }
                self.pool.uncount_tables(slot.leaf.bytes());
                *place = None;
            }
        }
        self.pool.zapped(&zapped);
    }

    /// Takes `indexes` out of leaves that no mapping has.
    pub(super) fn zap_left(&self, indexes: &Range<u64>) {
        let mut zapped = Vec::new();
        for (span, part) in self.pool.by_span(indexes) {
            let mut shared = self.spans[span as usize].0.lock();
            for place in shared.iter_mut() {
                let left = place.as_ref().filter(|known| known.sharers == 0);
                if let Some(known) = left
                    && known.leaf.zap(part.clone(), &mut zapped)
                {
                    self.pool.uncount_tables(known.leaf.bytes());
                    *place = None;
                }
            }
        }
        self.pool.zapped(&zapped);
    }

    /// Unshares the spans of which `indexes` have a part only.
    pub(super) fn unshare_ends(
        &self,
        tables: &Tables,
        indexes: &Range<u64>,
        locks: &Unsharing<'_>,
    ) {
        for (span, part) in self.pool.by_span(&tables.part(indexes)) {
            if part != self.pool.span_indexes(span) {
                self.unshare(tables, &part, locks);
            }
        }
    }

    /// Lets a mapping share nothing any more of the spans that have any of `indexes`: it
    /// drops a leaf that others have, and keeps one that only it has for itself.
    pub(super) fn unshare(&self, tables: &Tables, indexes: &Range<u64>, _locks: &Unsharing<'_>) {
        for span in self.pool.spans(&tables.part(indexes)) {
            let mut shared = self.spans[span as usize].0.lock();
            let mut place = tables.slot(span).lock();
            let Some(Slot {
                leaf,
                class: Some(class),
            }) = place.clone()
            else {
                // Its own, or none.
                continue;
            };
            *place = None;
            let known = &mut shared[class as usize];
            let sharers = known.as_ref().map_or(0, |known| known.sharers);
            assert!(sharers > 0, "a leaf that is shared is known");
            if sharers == 1 {
                *known = None;
                *place = Some(Slot { leaf, class: None });
            } else if let Some(known) = known {
                known.sharers -= 1;
                self.pool.stats.unshared.add(1);
            }
        }
    }
}
