//! What of a backing was written to, and its store has not got yet.
//!
//! ```text
//!   mapped, protected ──write──► DIRTY, writable ──write-back──► mapped, protected
//!                     (fault/file/write.rs)    (reclaim/write_back.rs)    │
//!                                                                        └─ evicted
//! ```
//!
//! A page is dirty if its bit is set in its folio, and from before the first write to it: the page
//! tables let nobody write to a page whose bit is not set. Both change under the folio lock. Write-back
//! protects the page first, and whoever writes to it then waits for the folio lock: so no write is lost, and
//! none is in the middle of what the store gets. Pages that are pinned may be in the hands of a system call, which fails
//! where a page is protected: they are written as they are, and stay dirty.

use super::folio::{Folio, flag};
use super::{Node, PageCache};
use crate::budget::FLOOR;
use crate::page::FaultError;
use crate::store::{StoreError, WriteBack};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

/// Pages of a node's files that are dirty.
#[derive(Default)]
pub(crate) struct DirtyPages(AtomicU64);

/// Where what was written to a backing goes.
pub(crate) struct Writes {
    /// Immutable.
    to: Arc<dyn WriteBack>,
    /// Dirty pages of this backing. Changed with the folio lock of each; Relaxed: a count.
    dirty: AtomicU64,
    /// How often write-back has failed, and above that how it did so last.
    failed: AtomicU64,
}

/// Of `Writes::failed`: the count. The rest is the errno, with [`SHORT`] for none.
const COUNT: u64 = u32::MAX as u64;
const SHORT: u32 = u32::MAX;

impl Writes {
    pub(super) fn new(to: Arc<dyn WriteBack>) -> Self {
        Self {
            to,
            dirty: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// The store.
    pub(crate) fn to(&self) -> &dyn WriteBack {
        &*self.to
    }

    /// A page could not be written.
    pub(crate) fn note(&self, error: StoreError) {
        let why = match error {
            StoreError::Io(errno) => errno as u32,
            StoreError::Short => SHORT,
        };
        let add = |before: u64| Some((before + 1) & COUNT | u64::from(why) << 32);
        // Relaxed: who asks has seen the write-back end.
        let _ = (self.failed).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

impl PageCache {
    /// True if it can be written to.
    pub fn is_writable(&self) -> bool {
        self.writes.is_some()
    }

    /// Pages that the store has not got yet.
    pub fn dirty_pages(&self) -> u64 {
        let dirty = |writes: &Writes| writes.dirty.load(Ordering::Relaxed);
        self.writes.as_ref().map_or(0, dirty)
    }

    /// Whether write-back has failed since `seen` was what this has left there; how, if so.
    pub fn write_error_since(&self, seen: &mut u32) -> Option<FaultError> {
        let failed = self.writes.as_ref()?.failed.load(Ordering::Relaxed);
        let count = (failed & COUNT) as u32;
        if core::mem::replace(seen, count) == count {
            return None;
        }
        Some(match (failed >> 32) as u32 {
            SHORT => FaultError::Short,
            errno => FaultError::Io(errno as i32),
        })
    }

    /// Makes a page dirty that is not. The caller holds the folio lock, and lets nobody write to it
    /// before.
    pub(crate) fn begin_dirty(&self, folio: &Folio, addr: usize) {
        let dirty = folio.dirty_pages();
        debug_assert!(self.is_writable() && dirty & folio.bit_of(addr) == 0);
        folio.set_dirty_pages(dirty | folio.bit_of(addr));
        self.count_dirty(1);
    }

    /// So many pages more.
    fn count_dirty(&self, pages: u64) {
        let writes = self.writes.as_ref().expect("it can be written to");
        writes.dirty.fetch_add(pages, Ordering::Relaxed);
        self.node.dirty.0.fetch_add(pages, Ordering::Relaxed);
    }

    /// Only these pages of a folio are dirty any more. The caller holds its lock; nobody can write
    /// to the others.
    pub(crate) fn end_dirty(&self, folio: &Folio, left: u32) {
        let before = folio.dirty_pages();
        debug_assert_eq!(left & !before, 0);
        folio.set_dirty_pages(left);
        let cleaned = u64::from((before & !left).count_ones());
        let writes = self.writes.as_ref().expect("it can be written to");
        writes.dirty.fetch_sub(cleaned, Ordering::Relaxed);
        self.node.dirty.0.fetch_sub(cleaned, Ordering::Relaxed);
    }

    /// True if `addr`'s page is in the window and may be written to.
    pub(crate) fn is_writable_at(&self, addr: usize) -> bool {
        let is_dirty = |folio: &Folio| folio.dirty_pages() & folio.bit_of(addr) != 0;
        (self.find(addr)).is_some_and(|folio| folio.is(flag::MAPPED) && is_dirty(&folio))
    }
}

impl Node {
    /// Pages of files that were written to, and that their stores have not got yet.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.0.load(Ordering::Relaxed)
    }

    /// True if another page may become dirty: where write-back fails, what is dirty stays, and
    /// faults that only read need something that can be evicted.
    pub(crate) fn may_dirty(&self) -> bool {
        let (limit, held) = (self.budget.limit(), self.budget.held());
        let others = limit.saturating_sub(held + self.pinned_pages() + FLOOR);
        self.dirty_pages() < others - others / 8
    }
}
