//! A file of huge pages.

use super::i_mmap::IMmap;
use super::share::Span;
use super::{HugeError, HugePool};
use crate::lock::{Mutex, WaitSnapshot};
use sync::Arc;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicU32, AtomicU64};

/// Of a word: nothing.
const HOLE: u32 = 0;
/// Nothing, and a page of the pool is promised.
const RESERVED: u32 = 1;
/// Nothing yet: a fault is taking the page that was promised.
const FILLING: u32 = 2;
/// Page 0; and so on.
const FIRST: u32 = 3;

/// The state of an index of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSlot {
    Hole,
    Reserved,
    /// Only under the fault mutex: for all others a page is on its way, for which no
    /// other is to be promised.
    Filling,
    Page(u32),
}

/// Memory made of huge pages that several spaces map: a file of hugetlbfs.
pub struct HugeFile {
    pub(super) pool: Arc<HugePool>,
    /// Unique in the pool.
    pub(super) id: u64,
    /// Held while the file gets another length, or a hole; and while a mapping reserves.
    pub(super) resize: Mutex<()>,
    /// Pages that it is long. Changed under `resize`; a fault reads it with its fault
    /// mutex held, and truncate takes that of each page afterwards.
    len: AtomicU64,
    /// A word an index. From and to a page it changes under the fault mutex.
    words: Box<[AtomicU32]>,
    /// Indexes with no page.
    unfilled: AtomicU64,
    pub(super) i_mmap: IMmap,
    /// Leaves that are shared, by span.
    pub(super) spans: Box<[Span]>,
}

impl HugeFile {
    /// A file of `pages` holes, which can never be longer.
    pub fn new(pool: &Arc<HugePool>, pages: u64) -> Result<Arc<Self>, HugeError> {
        if pages == 0 || pages > u32::MAX.into() {
            return Err(HugeError::Range);
        }
        let spans = pool.spans(&(0..pages));
        Ok(Arc::new(Self {
            id: pool.new_file(),
            resize: Mutex::new(()),
            len: AtomicU64::new(pages),
            words: (0..pages).map(|_| AtomicU32::new(HOLE)).collect(),
            unfilled: AtomicU64::new(pages),
            i_mmap: IMmap::new(pool.clock.clone()),
            spans: spans.map(|_| Span::new()).collect(),
            pool: pool.clone(),
        }))
    }

    /// The pool of its pages.
    pub fn pool(&self) -> &Arc<HugePool> {
        &self.pool
    }

    /// Pages that it is long.
    pub fn len(&self) -> u64 {
        // Acquire pairs with the Release in `set_len`.
        self.len.load(Acquire)
    }

    /// True if it has been truncated to nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages that it can be long.
    pub fn capacity(&self) -> u64 {
        self.words.len() as u64
    }

    /// Pages that are there.
    pub fn pages(&self) -> u64 {
        self.capacity() - self.unfilled()
    }

    /// Mappings that there are.
    pub fn mappings(&self) -> usize {
        self.i_mmap.mappings.lock().len()
    }

    /// How often `i_mmap` was taken for reading and for writing, and waited for.
    pub fn i_mmap_waits(&self) -> [WaitSnapshot; 2] {
        let lock = &self.i_mmap.lock;
        [lock.read_waits(), lock.write_waits()].map(|waits| waits.snapshot())
    }

    pub(super) fn set_len(&self, pages: u64) {
        // Release pairs with the Acquire in `len`.
        self.len.store(pages, Release);
    }

    pub(super) fn unfilled(&self) -> u64 {
        self.unfilled.load(Relaxed)
    }

    pub(super) fn at(&self, index: u64) -> FileSlot {
        // Relaxed: a page is handed over by the fault mutex.
        match self.words[index as usize].load(Relaxed) {
            HOLE => FileSlot::Hole,
            RESERVED => FileSlot::Reserved,
            FILLING => FileSlot::Filling,
            page => FileSlot::Page(page - FIRST),
        }
    }

    /// Lets an index be `to` if it is `from`; true if it was.
    pub(super) fn change(&self, index: u64, from: FileSlot, to: FileSlot) -> bool {
        let word = |at| match at {
            FileSlot::Hole => HOLE,
            FileSlot::Reserved => RESERVED,
            FileSlot::Filling => FILLING,
            FileSlot::Page(page) => page + FIRST,
        };
        let place = &self.words[index as usize];
        // Relaxed: as in `at`.
        let changed = place.compare_exchange(word(from), word(to), Relaxed, Relaxed);
        if changed.is_ok() {
            let is_page = |at| u64::from(matches!(at, FileSlot::Page(_)));
            self.unfilled.fetch_add(is_page(from), Relaxed);
            self.unfilled.fetch_sub(is_page(to), Relaxed);
        }
        changed.is_ok()
    }
}

impl Drop for HugeFile {
    fn drop(&mut self) {
        // No mapping is left: each has a reference. After this no core uses a page.
        self.zap_left(&(0..self.capacity()));
        for index in 0..self.capacity() {
            match self.at(index) {
                FileSlot::Hole | FileSlot::Filling => {}
                FileSlot::Reserved => self.pool.unreserve(1),
                FileSlot::Page(page) => self.pool.give(page, false),
            }
        }
    }
}
