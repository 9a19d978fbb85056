//! A pool of huge pages: the free, used and promised pages.
//!
//! The reservation is a number: so many of the free pages are taken only by mappings that
//! have reserved them. A page that comes back may be promised again at once, with
//! nobody in between.

use super::HugeError;
use super::mutexes::FaultMutexes;
use super::size::HugeSize;
use super::stats::{HugeSnapshot, HugeStats};
use crate::lock::Mutex;
use crate::mmu::{Mmu, SoftMmu};
use crate::policy::{HugeAround, HugeJoin, HugePolicies, LeftLeaf, ShareSync};
use crate::{Clock, PAGE_SIZE};
use sync::Arc;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pages of a leaf table, and mutexes: other than the product's only in models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Huge pages of a leaf table. A power of two.
    pub leaf_pages: usize,
    /// Fault mutexes. A power of two.
    pub fault_mutexes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            leaf_pages: 512,
            // Linux has 8 a processor.
            fault_mutexes: 512,
        }
    }
}

/// Huge pages of one size, all in soft page tables' memory.
pub struct HugePool {
    pub(super) mmu: Arc<SoftMmu>,
    /// The same, as the trait that a flush uses.
    pub(crate) tables: Arc<dyn Mmu>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) size: HugeSize,
    pub(super) shape: Shape,
    pub(super) sync: ShareSync,
    pub(super) around: HugeAround,
    pub(super) join: HugeJoin,
    pub(super) left: LeftLeaf,
    pub(super) mutexes: FaultMutexes,
    pub(super) stats: HugeStats,
    /// Frame of the first page.
    first: u32,
    /// Immutable.
    total: u32,
    stock: Mutex<Stock>,
    /// How many leaf tables show a page. Changed under the leaf's lock; exact for a
    /// holder of the page's fault mutex while nothing maps the page.
    mapped: Box<[AtomicU32]>,
    /// Bytes of tables in use: leaves, and mappings' upper tables.
    table_bytes: AtomicU64,
    /// The number of the last file made.
    last_file: AtomicU64,
}

/// Which pages are free.
#[derive(Debug)]
struct Stock {
    /// Given back.
    free: Vec<u32>,
    /// Pages from here on were never used: they are zeros.
    fresh: u32,
    /// Free ones that are promised.
    reserved: u64,
}

/// How many pages a pool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCounts {
    /// In all.
    pub total: u64,
    /// In no file.
    pub free: u64,
    /// Of the free ones, those that are promised.
    pub reserved: u64,
}

/// A page that was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct TakenPage {
    pub(super) page: u32,
    /// It has bytes of an earlier owner.
    pub(super) is_used: bool,
}

impl HugePool {
    /// `pages` huge pages out of the memory that `mmu` was made with for them
    /// ([`SoftMmu::with_huge_memory`]).
    pub fn new(
        mmu: Arc<SoftMmu>,
        clock: Arc<dyn Clock>,
        size: HugeSize,
        pages: u32,
        policies: impl Into<HugePolicies>,
    ) -> Result<Arc<Self>, HugeError> {
        Self::with_shape(mmu, clock, size, pages, policies, Shape::default())
    }

    /// The same, in another shape.
    pub fn with_shape(
        mmu: Arc<SoftMmu>,
        clock: Arc<dyn Clock>,
        size: HugeSize,
        pages: u32,
        policies: impl Into<HugePolicies>,
        shape: Shape,
    ) -> Result<Arc<Self>, HugeError> {
        assert!(shape.leaf_pages.is_power_of_two());
        let policies = policies.into();
        let frames = pages as usize * size.pages();
        let first = mmu.take_huge(frames).ok_or(HugeError::NoMemory)?;
        Ok(Arc::new(Self {
            tables: mmu.clone(),
            mmu,
            clock,
            size,
            shape,
            sync: policies.sync,
            around: policies.around,
            join: policies.join,
            left: policies.left,
            mutexes: FaultMutexes::new(shape.fault_mutexes),
            stats: HugeStats::default(),
            first,
            total: pages,
            stock: Mutex::new(Stock {
                free: Vec::new(),
                fresh: 0,
                reserved: 0,
            }),
            mapped: (0..pages).map(|_| AtomicU32::new(0)).collect(),
            table_bytes: AtomicU64::new(0),
            last_file: AtomicU64::new(0),
        }))
    }

    /// The size of its pages.
    pub fn size(&self) -> HugeSize {
        self.size
    }

    /// How many pages there are.
    pub fn counts(&self) -> PoolCounts {
        let stock = self.stock.lock();
        PoolCounts {
            total: self.total.into(),
            free: self.free(&stock),
            reserved: stock.reserved,
        }
    }

    /// Statistics of faults.
    pub fn stats(&self) -> HugeSnapshot {
        self.stats.snapshot(&self.mutexes)
    }

    /// Bytes of leaf tables, a shared one counted once, and of mappings' upper tables.
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn count_tables(&self, bytes: usize) {
        // Relaxed: a count for people.
        self.table_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn uncount_tables(&self, bytes: usize) {
        self.table_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn new_file(&self) -> u64 {
        // Relaxed: it only has to be another each time.
        self.last_file.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn free(&self, stock: &Stock) -> u64 {
        u64::from(self.total - stock.fresh) + stock.free.len() as u64
    }

    /// Promises `pages`.
    pub(super) fn reserve(&self, pages: u64) -> Result<(), HugeError> {
        let mut stock = self.stock.lock();
        let free = self.free(&stock) - stock.reserved;
        if free < pages {
            return Err(HugeError::Pool {
                wanted: pages,
                free,
            });
        }
        stock.reserved += pages;
        Ok(())
    }

    /// Takes a promise of `pages` back.
    pub(super) fn unreserve(&self, pages: u64) {
        let mut stock = self.stock.lock();
        let left = stock.reserved.checked_sub(pages);
        stock.reserved = left.expect("no more than was reserved");
    }

    /// Takes a page: one that was promised, or one that was not.
    pub(super) fn take(&self, reserved: bool) -> Option<TakenPage> {
        let mut stock = self.stock.lock();
        if reserved {
            let left = stock.reserved.checked_sub(1);
            stock.reserved = left.expect("a page that was reserved");
        } else if self.free(&stock) == stock.reserved {
            return None;
        }
        Some(match stock.free.pop() {
            Some(page) => TakenPage {
                page,
                is_used: true,
            },
            None => {
                let page = stock.fresh;
                assert!(page < self.total, "more pages reserved than there are");
                stock.fresh += 1;
                TakenPage {
                    page,
                    is_used: false,
                }
            }
        })
    }

    /// Gives a page back that nobody shows or accesses any more; `reserve` promises it,
    /// or another, at once.
    pub(super) fn give(&self, page: u32, reserve: bool) {
        assert_eq!(self.mapped(page), 0, "huge page {page} is mapped");
        let mut stock = self.stock.lock();
        stock.free.push(page);
        stock.reserved += u64::from(reserve);
    }

    /// Fills a page that is in nobody's sight with zeros.
    pub(super) fn clear(&self, page: u32) {
        for frame in self.frame(page)..self.frame(page) + self.size.pages() as u32 {
            // SAFETY: taken from the pool, and in no file yet.
            unsafe { self.mmu.clear_huge(frame) };
        }
    }

    /// The first frame of a page.
    pub(super) fn frame(&self, page: u32) -> u32 {
        self.first + page * (self.size.bytes() / PAGE_SIZE) as u32
    }

    pub(super) fn mapped(&self, page: u32) -> u32 {
        // Acquire pairs with the Release in `count_unmapped`: the entry is gone.
        self.mapped[page as usize].load(Ordering::Acquire)
    }

    pub(super) fn count_mapped(&self, page: u32) {
        // Relaxed: ordered by the leaf's lock and the fault mutex.
        self.mapped[page as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_unmapped(&self, page: u32) {
        // Release pairs with the Acquire in `mapped`.
        let before = self.mapped[page as usize].fetch_sub(1, Ordering::Release);
        assert!(before > 0, "huge page {page} was not mapped");
    }
}
