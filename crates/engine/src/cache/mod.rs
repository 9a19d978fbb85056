//! The page cache of one backing, as one window shows it: Linux's
//! `address_space`.
//!
//! ```text
//!   PageCache ── store    pages are read from it
//!      │      ── window   their addresses, and the number that are mapped (`window`)
//!      │      ── readahead  a prediction of the next touches
//!      ▼
//!   Node      ── index    address → folio (`index`)
//!             ── frames   bytes read and not yet touched (`frames`)
//!             ── lists    the order of eviction (`reclaim`)
//! ```
//!
//! One backing has one window, so an address names a page of a backing, and
//! all mappings of the file see the same page. A page is in at most one folio.
//!
//! Mutual exclusion, for one page:
//!
//! | | fault | read-ahead | eviction | truncate |
//! |---|---|---|---|---|
//! | **fault** | bucket, then folio lock | bucket | folio lock | folio lock |
//! | **read-ahead** | | bucket | reference count | bucket, `end` |
//! | **eviction** | | | folio lock | folio lock |
//! | **truncate** | | | | the caller |

use crate::PAGE_SIZE;
use crate::anon::View;
use crate::lock::{Mutex, order};
use crate::mmu::{MmuError, Reservation};
use crate::readahead::{MmapMiss, ReadAhead};
use crate::stage::Stage;
use crate::store::{Store, WriteBack};
use core::ops::Range;
use sync::Arc;
use sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub(crate) mod arena;
mod contents;
mod dirty;
pub mod folio;
pub mod folio_ref;
pub mod frames;
mod hold;
pub mod index;
pub mod node;
mod pins;
pub mod reads;
pub mod residency;
pub(crate) mod row;
pub(crate) mod spurious;
pub mod truncate;
mod walk;
pub mod window;
mod write_back;

use contents::Contents;
pub(crate) use dirty::{DirtyPages, Writes};
use folio::Folio;
pub use folio_ref::FolioRef;
pub use frames::FrameMemory;
pub use hold::{HeldPages, Shortage};
pub use node::{Node, NodeError, NodeOptions};
pub use residency::Residency;
pub use truncate::TruncateGuard;
use window::Window;
pub use write_back::WriteBackCursor;

/// The result of a touch past the end of a truncated file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnTruncate {
    /// An error; a plain touch raises SIGBUS, as with mmap.
    #[default]
    Error,
    /// Zeros.
    Zeros,
}

/// Why there is no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapError {
    /// There are no page tables for it.
    Mmu(MmuError),
    /// The budget cannot hold its tables.
    Budget(Shortage),
}

impl From<MmuError> for MapError {
    fn from(error: MmuError) -> Self {
        Self::Mmu(error)
    }
}

/// The folios of one backing.
pub struct PageCache {
    /// Immutable.
    pub(crate) node: Arc<Node>,
    /// Immutable.
    pub(crate) store: Arc<dyn Store>,
    /// Immutable; its words are atomics.
    pub(crate) window: Arc<Window>,
    /// Whose pages they are. Immutable.
    contents: Contents,
    /// The destination of dirty pages; `None`: it is only read. Immutable.
    pub(crate) writes: Option<Writes>,
    /// Bytes of the backing that may be shown. Changed by `truncate`, and by
    /// a read that finds the backing shorter.
    pub(crate) end: AtomicU64,
    /// Held while `end` follows the length of a store that is written to, and during a change of that length, from before
    /// the call to `truncate` until the cache knows the result. Held over write-back, and over waits for folios.
    length: Mutex<(), { order::LENGTH }>,
    /// The part that is being taken out of the store, in units of `emptied_unit` from the window's start: the first and, above 32 bits,
    /// the one after the last; or 0. Changed by the holder of `length`.
    emptied: AtomicU64,
    /// Immutable.
    pub(crate) on_truncate: OnTruncate,
    /// Pages admitted by `admit_pin` and not let go.
    pinned: AtomicU64,
    /// The prediction of the next touches. Its lock is a leaf: nothing is locked while
    /// it is held.
    pub(crate) readahead: Mutex<ReadAhead, { order::READAHEAD }>,
    /// Misses in a row that were answered by the page alone, as far as they count (`reads::ahead`). Changed under `readahead`.
    pub(crate) at_random: AtomicU32,
    /// The same as Linux has it, for the policies that are not the default.
    /// Its lock is a leaf too.
    pub(crate) mmap_miss: Mutex<MmapMiss, { order::READAHEAD }>,
    /// Folios in the index, and on their way into it.
    pub(crate) folios: AtomicUsize,
}

impl PageCache {
    /// The cache of `store`'s first `bytes` bytes, in a window of its own. The window's
    /// tables are charged as long as it lives.
    pub fn new(
        node: Arc<Node>,
        store: Arc<dyn Store>,
        bytes: u64,
        on_truncate: OnTruncate,
    ) -> Result<Arc<Self>, MapError> {
        let window = Arc::new(node.make_window(bytes)?);
        Ok(Arc::new(Self::over(
            node,
            store,
            window,
            bytes,
            on_truncate,
        )))
    }

    /// The cache of `store`'s first `bytes` bytes, in a window of its own that may be written to: dirty
    /// pages go to `to`, which is the same store. Only where pages can be protected. A touch past the end is an
    /// error.
    pub fn new_writable(
        node: Arc<Node>,
        (store, to): (Arc<dyn Store>, Arc<dyn WriteBack>),
        bytes: u64,
    ) -> Result<Arc<Self>, MapError> {
        assert!(node.mmu.can_protect(), "a write would not be seen");
        let window = Arc::new(node.make_writable_window(bytes)?);
        let mut cache = Self::over(node, store, window, bytes, OnTruncate::Error);
        cache.writes = Some(Writes::new(to));
        Ok(Arc::new(cache))
    }

    /// The cache of private memory, in the memory's window.
    pub(crate) fn private_of(
        node: Arc<Node>,
        view: Arc<View>,
        window: Arc<Window>,
        on_truncate: OnTruncate,
    ) -> Arc<Self> {
        let bytes = window.reservation().bytes as u64;
        let store = view.clone();
        let mut cache = Self::over(node, store, window, bytes, on_truncate);
        cache.contents = Contents::Private(view);
        Arc::new(cache)
    }

    fn over(
        node: Arc<Node>,
        store: Arc<dyn Store>,
        window: Arc<Window>,
        bytes: u64,
        on_truncate: OnTruncate,
    ) -> Self {
        Self {
            store,
            window,
            contents: Contents::File,
            writes: None,
            end: AtomicU64::new(bytes),
            length: Mutex::ranked(()),
            emptied: AtomicU64::new(0),
            on_truncate,
            pinned: AtomicU64::new(0),
            readahead: Mutex::ranked(ReadAhead::new(bytes.div_ceil(PAGE_SIZE as u64))),
            at_random: AtomicU32::new(0),
            mmap_miss: Mutex::ranked(MmapMiss::new(node.linux_window())),
            folios: AtomicUsize::new(0),
            node,
        }
    }

    /// The node that pays.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The store behind it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Where that is, as the page tables know it.
    pub fn reservation(&self) -> &Reservation {
        self.window.reservation()
    }

    /// True if nothing else is in the reservation: not of small windows, which share one.
    pub fn has_own_reservation(&self) -> bool {
        self.is_writable() || arena::is_alone(self.window.reservation().bytes)
    }

    /// True if memory can be moved into the window: pages of it are protected although it is only read.
    pub fn is_for_moves(&self) -> bool {
        self.window.is_for_moves()
    }

    /// The addresses that show the backing.
    pub fn addresses(&self) -> Range<usize> {
        self.window.reservation().range()
    }

    /// Byte of the backing that `addr` shows.
    pub(crate) fn offset(&self, addr: usize) -> u64 {
        (addr - self.window.reservation().addr) as u64
    }

    /// Address that shows byte `offset`.
    pub(crate) fn address(&self, offset: u64) -> usize {
        self.window.reservation().addr + offset as usize
    }

    /// Page of the backing that `addr` shows.
    pub(crate) fn page(&self, addr: usize) -> u64 {
        self.offset(addr) / PAGE_SIZE as u64
    }

    /// Pages of the backing that may be shown, a partial last one included.
    pub(crate) fn pages(&self) -> u64 {
        self.end().div_ceil(PAGE_SIZE as u64)
    }

    /// For read-ahead as Linux has it: windows of `pages` pages, at least four,
    /// as `read_ahead_kb` sets them. Resets the counts.
    pub fn set_ra_pages(&self, pages: u32) {
        *self.mmap_miss.lock() = MmapMiss::new(pages);
    }

    /// Bytes of the backing that may be shown.
    pub fn end(&self) -> u64 {
        // Acquire pairs with the Release in `truncate`.
        self.end.load(Ordering::Acquire)
    }

    /// Folios of this backing that are cached, in frames or mapped.
    pub fn folio_count(&self) -> usize {
        self.folios.load(Ordering::Acquire)
    }

    /// Finds the folio of `addr`'s page and takes a reference.
    pub(crate) fn find(&self, addr: usize) -> Option<FolioRef<'_>> {
        let _stage = Stage::LookUp.span();
        let bucket = self.node.index.lock(addr, &self.node.folios);
        let folio = bucket.find(addr)?;
        bucket.get(folio);
        Some(FolioRef::new(&self.node, folio))
    }

    /// The pages around `addr` of which none is cached, within `most`, which
    /// lies in one block.
    pub(crate) fn absent_around(&self, addr: usize, most: Range<usize>) -> Range<usize> {
        let bucket = self.node.index.lock(addr, &self.node.folios);
        let mut absent = most;
        for folio in bucket.iter() {
            let pages = folio.range();
            if pages.end <= addr {
                absent.start = absent.start.max(pages.end);
            } else if addr < pages.start {
                absent.end = absent.end.min(pages.start);
            }
        }
        absent
    }

    /// Puts a fresh folio into the index, unless a page of it is there, or was
    /// truncated meanwhile. On success the caller has a second reference.
    pub(crate) fn insert<'a>(&'a self, folio: &'a Folio) -> Option<FolioRef<'a>> {
        let range = folio.range();
        let mut bucket = self.node.index.lock(range.start, &self.node.folios);
        let last = self.offset(range.end - PAGE_SIZE);
        // Counted before the look at the end. AcqRel pairs with the same in
        // `truncate`: the new end is seen here, or the folio there.
        self.folios.fetch_add(1, Ordering::AcqRel);
        if bucket.overlaps(&range) || (last >= self.end() && self.on_truncate == OnTruncate::Error)
        {
            self.folios.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        // In the same way: either this sees that `empty` takes pages away, or `empty` sees the folio.
        if self.is_emptied(&range) {
            self.folios.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        bucket.insert(folio);
        bucket.get(folio);
        Some(FolioRef::new(&self.node, folio))
    }

    /// Takes a folio out of the index. The caller holds the folio lock; the
    /// index's reference is dropped.
    pub(crate) fn remove(&self, folio: &Folio) {
        let mut bucket = self.node.index.lock(folio.range().start, &self.node.folios);
        bucket.remove(folio);
        drop(bucket);
        self.node.lru.lists.remove(&self.node.folios, folio);
        self.folios.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.forget_pins();
        self.evict_all();
        // That of private memory is the memory's.
        match self.is_writable() {
            true => self.node.give_writable_window(&self.window),
            false if !self.is_private() => self.node.give_window(&self.window),
            false => {}
        }
    }
}
