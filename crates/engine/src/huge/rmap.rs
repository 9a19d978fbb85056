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
//! Faults take the share lock first, and they are many: so it is this side that backs
//! out. What it knew it looks up again: the list may be another by then.

use super::file::HugeFile;
use super::tables::Tables;
use super::unshare::Unsharing;
use crate::lock::WriteGuard;
use core::ops::Range;
use sync::Arc;

impl HugeFile {
    /// Takes `indexes` out of all mappings; true if any showed one. The caller has
    /// `i_mmap` for writing in the baseline, and no lock that comes after the fault mutex
    /// otherwise. Nobody uses the pages any more when it returns.
    pub(super) fn unmap_pages(&self, indexes: &Range<u64>, held: Option<&WriteGuard<'_>>) -> bool {
        let mut any = false;
        loop {
            let own = held.is_none().then(|| self.i_mmap.lock.write());
            let found = self.i_mmap.find(|tables| tables.shows(&self.pool, indexes));
            let Some(tables) = found else { break };
            any = true;
            match (held, own) {
                (Some(_i_mmap), _) => {
                    let locks = Unsharing {
                        _share: None,
                        _i_mmap,
                    };
                    self.zap(&tables, indexes, &locks);
                }
                (None, Some(i_mmap)) => self.zap_under_share_lock(&tables, indexes, i_mmap),
                (None, None) => unreachable!("taken above"),
            }
        }
        if any {
            self.pool.tables.flush_tlbs();
        }
        any
    }

    fn zap_under_share_lock(
        &self,
        tables: &Arc<Tables>,
        indexes: &Range<u64>,
        i_mmap: WriteGuard<'_>,
    ) {
        let (share, i_mmap) = match tables.share.try_write() {
            Some(share) => (share, i_mmap),
            None => {
                self.pool.stats.backed_out.add(1);
                drop(i_mmap);
                let share = tables.share.write();
                (share, self.i_mmap.lock.write())
            }
        };
        let locks = Unsharing {
            _share: Some(share),
            _i_mmap: &i_mmap,
        };
        self.zap(tables, indexes, &locks);
    }
}
