//! From a file to its mappings: taking pages out of all of them.
//!
//! ```text
//!   i_mmap for write ── a mapping shows a page? ── no ──► done
//!      ▲                     │ yes
//!      │                try its share lock ── taken ──► out of its mapping ─┐
//!      │                     │ not to be had                                │
//!      │                let i_mmap go, wait for the share lock,             │
//!      │                take i_mmap again ──► out of its mapping            │
//!      └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A mapping whose share lock this thread has already is shown once more where another has begun to share its leaf meanwhile: it
//! is taken out without its lock being waited for.
//!
//! Faults take the share lock first, and they are many: so it is this side that backs
//! out. It looks everything up again: the list may have changed by then. The share
//! locks that it has it keeps to the end: otherwise those that it has been through could begin to
//! share again, and it would never be through with all of them.

use super::file::HugeFile;
use super::tables::Tables;
use super::unshare::{Pages, Unsharing};
use crate::lock::WriteGuard;
use core::ops::Range;
use sync::Arc;

impl HugeFile {
    /// Takes `indexes` out of all mappings. The caller has `i_mmap` for writing in the
    /// baseline, and otherwise no lock that comes after the fault mutex; and it holds
    /// `resize`, so that nobody else has several share locks. Nobody uses the pages any
    /// more when it returns.
    pub(super) fn unmap_pages(&self, indexes: &Range<u64>, held: Option<&WriteGuard<'_>>) {
        match held {
            Some(_i_mmap) => {
                while let Some(tables) = self.shown_by(indexes) {
                    let locks = Unsharing {
                        _share: None,
                        _i_mmap,
                    };
                    self.zap(&tables, indexes, Pages::Go, &locks);
                }
            }
            None => self.unmap_under_share_locks(indexes),
        }
    }

    /// A mapping that shows any of `indexes`; leaves that nobody has do not any more.
    fn shown_by(&self, indexes: &Range<u64>) -> Option<Arc<Tables>> {
        // First: a mapping that begins to share one of these afterwards finds nothing in it,
        // and one that has begun before is found.
        self.zap_left(indexes);
        let shows = |tables: &Tables| tables.shows(&self.pool, indexes);
        self.i_mmap.find(shows)
    }

    fn unmap_under_share_locks(&self, indexes: &Range<u64>) {
        // To the end, after `i_mmap`. On the heap: a file may have tens of thousands of mappings.
        let mut held: Vec<ShareLocked> = Vec::new();
        let mut i_mmap = self.i_mmap.lock.write();
        // The rest with these locks in hand: each is taken once at most.
        while let Some(tables) = self.shown_by(indexes) {
            let share = match tables.share.try_write() {
                Some(share) => share,
                None if held.iter().any(|held| Arc::ptr_eq(&held.0, &tables)) => {
                    // It has kept a leaf of which it was the only sharer. While `i_mmap` was let go another began to share it, and
                    // faulted the page in again: this one drops the leaf now, or loses the page.
                    let locks = Unsharing {
                        _share: None,
                        _i_mmap: &i_mmap,
                    };
                    self.zap(&tables, indexes, Pages::Go, &locks);
                    continue;
                }
                None => {
                    self.pool.stats.backed_out.add(1);
                    drop(i_mmap);
                    let share = tables.share.write();
                    i_mmap = self.i_mmap.lock.write();
                    share
                }
            };
            let locks = Unsharing {
                _share: Some(&share),
                _i_mmap: &i_mmap,
            };
            self.zap(&tables, indexes, Pages::Go, &locks);
            share.leave_held();
            held.push(ShareLocked(tables));
        }
    }
}

/// A mapping whose share lock this thread holds for writing, until it is dropped.
struct ShareLocked(Arc<Tables>);

impl Drop for ShareLocked {
    fn drop(&mut self) {
        self.0.share.leave_write();
    }
}
