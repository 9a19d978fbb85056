//! A space's mapping of a huge file.

use super::file::HugeFile;
use super::tables::Tables;
use super::unshare::{Pages, Unsharing};
use super::{HugeError, HugePool};
use crate::policy::ShareSync;
use crate::{PAGE_SHIFT, PAGE_SIZE};
use core::ops::Range;
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

/// Whether a mapping's pages are promised to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reserve {
    /// They are: it is refused if the pool has not enough, and no touch is while the file keeps its
    /// length. Promises that a truncate took back are not made again when the file becomes longer.
    #[default]
    Yes,
    /// A touch that finds the pool empty fails (`MAP_NORESERVE`).
    No,
}

/// The number of no space.
const NO_SPACE: u64 = 0;

/// An address space's mapping of a huge file. It belongs to the first space that maps
/// it, which shows each page at one address at most; `pgoff` counts base pages of the
/// file.
pub struct HugeMapping {
    pub(super) file: Arc<HugeFile>,
    pub(super) tables: Arc<Tables>,
    /// The space that maps it, or [`NO_SPACE`]. Set once.
    space: AtomicU64,
}

impl HugeMapping {
    /// For `indexes` of `file`.
    pub fn new(
        file: &Arc<HugeFile>,
        indexes: Range<u64>,
        reserve: Reserve,
    ) -> Result<Arc<Self>, HugeError> {
        if indexes.is_empty() || indexes.end > file.capacity() {
            return Err(HugeError::Range);
        }
        let reserves = reserve == Reserve::Yes;
        // Dropping it undoes the steps so far.
        let mapping = Self::unreserved(file, indexes.clone(), reserves);
        if reserves {
            // Nobody makes holes meanwhile, or ends the file.
            let _resize = file.resize.lock();
            file.reserve(indexes.start..indexes.end.min(file.len()).max(indexes.start))?;
        }
        Ok(mapping)
    }

    /// For `indexes` that are within the file, with no page promised yet.
    fn unreserved(file: &Arc<HugeFile>, indexes: Range<u64>, reserves: bool) -> Arc<Self> {
        let pool = &file.pool;
        let tables = Tables::new(pool, pool.clock.clone(), indexes, reserves);
        {
            let _i_mmap = file.i_mmap.lock.write();
            file.i_mmap.add(&tables);
        }
        Arc::new(Self {
            file: file.clone(),
            tables,
            space: AtomicU64::new(NO_SPACE),
        })
    }

    /// The file.
    pub fn file(&self) -> &Arc<HugeFile> {
        &self.file
    }

    /// The pool of its pages.
    pub fn pool(&self) -> &Arc<HugePool> {
        &self.file.pool
    }

    /// Huge pages that it shows, those that others have faulted in included.
    pub fn mapped_pages(&self) -> u64 {
        self.tables.mapped(&self.file.pool)
    }

    /// Base pages of the file that it may show.
    pub(crate) fn pages(&self) -> Range<u64> {
        let pages = self.pool().size.pages() as u64;
        self.tables.indexes.start * pages..self.tables.indexes.end * pages
    }

    /// The indexes of which `bytes` from a `pgoff` on have all.
    pub(super) fn shown(&self, pgoff: u64, bytes: usize) -> Range<u64> {
        let pages = self.pool().size.pages() as u64;
        let end = pgoff + (bytes >> PAGE_SHIFT) as u64;
        pgoff.div_ceil(pages)..end / pages
    }

    /// True if a VMA of it with this `pgoff` may begin or end so many bytes on, which is
    /// at `addr`.
    pub(crate) fn is_aligned(&self, pgoff: u64, distance: usize, addr: usize) -> bool {
        let byte = (pgoff as usize * PAGE_SIZE).wrapping_add(distance);
        let bytes = self.pool().size.bytes();
        byte.is_multiple_of(bytes) && addr.is_multiple_of(bytes)
    }

    /// The frame that has a base page of the file, if it is mapped; looked up inside an
    /// access, which is ended by a shootdown before the frame is reused. Nobody waits for
    /// a shootdown with the slot locked.
    pub(crate) fn frame(&self, page: u64) -> Option<u32> {
        let pages = self.pool().size.pages() as u64;
        let mapped = self.tables.page(self.pool(), page / pages)?;
        Some(self.pool().frame(mapped) + (page % pages) as u32)
    }

    /// True if a touch of a base page of the file finds it.
    pub fn is_mapped(&self, page: u64) -> bool {
        self.frame(page).is_some()
    }

    /// Takes out the pages of `bytes` from a `pgoff` on: no VMA shows them any more, and no
    /// fault of the space is under way.
    pub(crate) fn unmap(&self, pgoff: u64, bytes: usize) {
        let indexes = self.shown(pgoff, bytes);
        self.with_locks(|locks| {
            // A span that was shown as a whole is not any more.
            self.file.unshare_ends(&self.tables, &indexes, locks);
            self.file.zap(&self.tables, &indexes, Pages::Stay, locks);
        });
    }

    /// Lets the mapping have the tables of `bytes` from a `pgoff` on for itself: they
    /// are about to be shown elsewhere, or may be used otherwise.
    pub(crate) fn unshare(&self, pgoff: u64, bytes: usize) {
        let indexes = self.shown(pgoff, bytes);
        self.with_locks(|locks| self.file.unshare(&self.tables, &indexes, locks));
    }

    fn with_locks(&self, f: impl FnOnce(&Unsharing<'_>)) {
        let baseline = self.pool().sync == ShareSync::IMmapRwsem;
        let share = (!baseline).then(|| self.tables.share.write());
        let i_mmap = self.file.i_mmap.lock.write();
        f(&Unsharing {
            _share: share.as_ref(),
            _i_mmap: &i_mmap,
        });
    }

    /// The same of the file, for a space that begins as a copy. It faults by itself, and
    /// shares. It wants the pages that are promised already and is promised no others, as in
    /// Linux: a fork never fails for want of huge pages.
    pub(crate) fn fork(&self) -> Arc<Self> {
        let tables = &self.tables;
        Self::unreserved(&self.file, tables.indexes.clone(), tables.reserves)
    }

    /// Makes `space` the one that maps it: true the first time.
    ///
    /// # Panics
    /// If another has mapped it before.
    pub(crate) fn claim(&self, space: u64) -> bool {
        // Relaxed: only compared; `mmap_lock` of the space orders the rest.
        let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.space.compare_exchange(NO_SPACE, space, set, failed) {
            Ok(_) => true,
            Err(owner) => {
                assert!(owner == space, "a huge mapping of space {owner}");
                false
            }
        }
    }
}

impl Drop for HugeMapping {
    fn drop(&mut self) {
        let all = self.tables.indexes.clone();
        // After an unmap there is nothing, and others wait for `i_mmap`.
        let has_leaves = self.tables.has_leaves();
        self.with_locks(|locks| {
            if has_leaves {
                self.file.zap(&self.tables, &all, Pages::Stay, locks);
            }
            self.file.i_mmap.remove(&self.tables);
        });
        self.file.unreserve(&self.tables);
        self.pool().uncount_tables(self.tables.bytes());
    }
}
