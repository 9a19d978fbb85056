//! A node: the frames, folios, lists and ghosts under one budget, as Linux's
//! `pglist_data` is the memory that one allocator and one reclaim serve.

use super::arena::Arenas;
use super::believed::Believed;
use super::folio::{BLOCK_PAGES, Folio, NO_FRAME, flag};
use super::frames::{FrameMemory, Frames};
use super::index::Index;
use crate::PAGE_SIZE;
use crate::budget::Need;
use crate::budget::{Budget, FLOOR};
use crate::lock::Mutex;
use crate::policy::Policies;
use crate::reclaim::anonymous::{AnonymousBatches, Balance};
use crate::reclaim::patience::Patience;
use crate::reclaim::windows::Windows;
use crate::reclaim::{Batches, Ghosts, Lists};
use crate::slab::Slab;
use crate::stats::{NodeStats, PerCpuCounter};
use crate::swap::Swap;
use crate::{Clock, Mmu};
use sync::Arc;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::stat::Counter;

/// The least budget that a node can work with, in bytes.
pub const LEAST_BYTES: usize = 8 << 20;
/// The largest window of read-ahead: 8 MiB, in pages.
pub(crate) const MAX_WINDOW: u32 = 2048;
/// The largest budget, in pages: folios and frames have numbers of 32 bits.
const MOST_PAGES: usize = 1 << 31;
/// A folio's metadata, as a share of the page that it is at least.
const FOLIO_SHARE: usize = PAGE_SIZE / size_of::<Folio>();

/// Why a node could not be made or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeError {
    /// Fewer bytes than [`LEAST_BYTES`].
    BudgetTooSmall,
    /// More than the node was made for (see [`NodeOptions::most_bytes`]).
    BudgetTooLarge,
    /// The enclosing budget has not that much, or the system has no memory for the
    /// tables of so large a budget.
    NoMemory,
    /// Maps, pins and private memory hold more than that leaves to faults.
    Held,
}

/// What a node may be made with; by default nothing special.
#[derive(Default)]
pub struct NodeOptions {
    /// What the budget may later be raised to. Less than it is: nothing.
    pub most_bytes: usize,
    /// How faults retry and what read-ahead counts. That of the VMA lock is the
    /// address space's, and not looked at here.
    pub policies: Policies,
    /// Where anonymous memory goes that is evicted.
    pub swap: Option<Arc<Swap>>,
}

/// Everything under one budget.
pub struct Node {
    /// What may be resident.
    pub budget: Arc<Budget>,
    /// Page tables of the space that shows this node's pages.
    pub mmu: Arc<dyn Mmu>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What happened so far.
    pub stats: NodeStats,
    /// Where anonymous memory goes that is evicted. Immutable.
    pub swap: Option<Arc<Swap>>,
    /// How faults retry and what read-ahead counts. Immutable.
    pub policies: Policies,
    /// All folios.
    pub(crate) folios: Slab<Folio>,
    /// Folios by address.
    pub(crate) index: Index,
    pub(crate) frames: Frames,
    pub(crate) lists: Lists,
    pub(crate) ghosts: Ghosts,
    pub(crate) batches: Batches,
    /// Where windows of files are.
    pub(crate) arenas: Arenas,
    /// Private memory that can be evicted.
    pub(crate) windows: Windows,
    pub(crate) anonymous_batches: AnonymousBatches,
    /// Pages of private memory evicted so far.
    pub(crate) anonymous_clock: AtomicU64,
    /// Pages of private memory charged so far, but for those that faults filled with
    /// zeros, and uncharged so far.
    pub(crate) anonymous_in: PerCpuCounter,
    /// See `anonymous_in`.
    pub(crate) anonymous_out: Counter,
    pub(crate) balance: Balance,
    /// What its faults took for mapped a moment ago.
    pub(crate) believed: Believed,
    /// Folio slots in use: as many as the budget has pages, at most.
    used: AtomicUsize,
    /// Anonymous windows there are. Relaxed: asked where nothing moves.
    pub(crate) anonymous: AtomicUsize,
    /// Pages that are pinned: never more than half of the budget.
    pinned: AtomicU64,
    /// Pages that the budget may be raised to. Immutable.
    most: usize,
    /// Pages of metadata charged for the whole life. Immutable.
    fixed: u64,
    /// Pages charged for folios; [`set_memory`](Self::set_memory) changes it.
    /// Taken outside of all other locks.
    shares: Mutex<u64>,
}

impl Node {
    /// A node over `budget`.
    pub fn new(
        budget: Arc<Budget>,
        mmu: Arc<dyn Mmu>,
        frames: Arc<dyn FrameMemory>,
        clock: Arc<dyn Clock>,
        options: NodeOptions,
    ) -> Result<Arc<Self>, NodeError> {
        let NodeOptions {
            most_bytes,
            policies,
            swap,
        } = options;
        let pages = budget.limit() as usize;
        if pages * PAGE_SIZE < LEAST_BYTES {
            return Err(NodeError::BudgetTooSmall);
        }
        if pages > MOST_PAGES {
            return Err(NodeError::NoMemory);
        }
        let most = (most_bytes / PAGE_SIZE).clamp(pages, MOST_PAGES);
        let no_memory = NodeError::NoMemory;
        let index = Index::new(pages).ok_or(no_memory)?;
        let ghosts = Ghosts::new(pages).ok_or(no_memory)?;
        let batches = Batches::new();
        let anonymous_batches = AnonymousBatches::new();
        let frames = Frames::new(frames, budget.clone()).ok_or(no_memory)?;
        let tables = index.bytes()
            + ghosts.bytes()
            + batches.bytes()
            + anonymous_batches.bytes()
            + frames.table_bytes();
        // The first chunk of frames is paid for here, for good: a demand fault
        // always has frames to turn to.
        let fixed = tables.div_ceil(PAGE_SIZE) + super::frames::CHUNK_PAGES + 1;
        let shares = (pages / FOLIO_SHARE) as u64;
        let charge = fixed as u64 + shares;
        if !budget.hold(charge) {
            return Err(NodeError::NoMemory);
        }
        while !budget.try_charge(charge, FLOOR) {
            // Those who share an enclosing budget make room for a newcomer.
            // None are short if something was given back meanwhile.
            if let Some(short) = budget.short_of(charge + FLOOR) {
                let made = short.squeeze((charge + FLOOR) as usize);
                if made == 0 && short.short_of(charge + FLOOR).is_some() {
                    budget.let_go(charge);
                    return Err(NodeError::NoMemory);
                }
            }
        }
        if let Some(swap) = &swap {
            // The words of the first slots; those of others come with evictions.
            swap.slots.prepare();
        }
        Ok(Arc::new(Self {
            folios: Slab::new(most as u32),
            index,
            frames,
            lists: Lists::new(policies.miss_accounting.eviction_order()),
            ghosts,
            batches,
            arenas: Arenas::default(),
            windows: Windows::default(),
            anonymous_batches,
            anonymous_clock: AtomicU64::new(0),
            anonymous_in: PerCpuCounter::default(),
            anonymous_out: Counter::new(),
            balance: Balance::default(),
            believed: Believed::default(),
            stats: NodeStats::default(),
            policies,
            used: AtomicUsize::new(0),
            anonymous: AtomicUsize::new(0),
            pinned: AtomicU64::new(0),
            most,
            fixed: fixed as u64,
            shares: Mutex::new(shares),
            budget,
            mmu,
            clock,
            swap,
        }))
    }

    /// Changes the budget to `bytes` and reclaims down to it. Where maps, pins or
    /// private memory hold so much that faults could not go on, and where an enclosing
    /// budget cannot spare what a larger one costs, the budget stays as it was.
    pub fn set_memory(&self, bytes: usize) -> Result<(), NodeError> {
        let pages = bytes / PAGE_SIZE;
        if pages * PAGE_SIZE < LEAST_BYTES {
            return Err(NodeError::BudgetTooSmall);
        }
        if pages > self.most {
            return Err(NodeError::BudgetTooLarge);
        }
        let mut shares = self.shares.lock();
        let after = (pages / FOLIO_SHARE) as u64;
        let before = self.budget.limit();
        self.budget.set_limit(pages as u64);
        let less = shares.saturating_sub(after);
        if self.budget.held() - less > self.budget.most_held() || !self.reclaim_down(less) {
            self.budget.set_limit(before);
            return Err(NodeError::Held);
        }
        self.let_go(less);
        *shares -= less;
        if after > *shares {
            let more = after - *shares;
            if self.hold(more).is_err() {
                self.budget.set_limit(before);
                return Err(NodeError::NoMemory);
            }
            *shares = after;
        }
        Ok(())
    }

    /// Reclaims until the limit is kept, and leaves faults their floor, once `less` pages
    /// have been given back; false if what is there cannot be evicted.
    fn reclaim_down(&self, less: u64) -> bool {
        let mut patience = Patience::new(&*self.clock);
        loop {
            let subscription = self.budget.subscribe();
            let charged = (self.budget.charged() + FLOOR).saturating_sub(less);
            let excess = charged.saturating_sub(self.budget.limit()) as usize;
            // What was evicted and taken again at once could be evicted again.
            if excess == 0 || self.reclaim(excess) >= excess {
                return true;
            }
            if self.squeeze(excess) == 0 {
                if self.has_nothing_left(Need::Pages(excess)) {
                    return false;
                }
                // Reads under way, and folios in the hands of others.
                patience.wait(subscription);
            }
            if patience.is_over() {
                return false;
            }
        }
    }

    /// Counts `pages` as pinned if at most half of the budget is then, and if faults keep
    /// their floor beside what maps hold. Decided once for all pages of a pin: one that had
    /// got some of them and waited for the others could wait for one that does the same.
    pub fn try_pin(&self, pages: u64) -> bool {
        let limit = self.budget.limit();
        let most = (limit / 2).min(limit.saturating_sub(self.budget.held() + FLOOR));
        let add = |pinned: u64| (pinned + pages <= most).then_some(pinned + pages);
        self.pinned
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    /// Takes back what [`try_pin`](Self::try_pin) counted.
    pub fn unpin_pages(&self, pages: u64) {
        let before = self.pinned.fetch_sub(pages, Ordering::Relaxed);
        assert!(before >= pages, "more unpinned than pinned");
    }

    /// Pages counted as pinned.
    pub(crate) fn pinned_pages(&self) -> u64 {
        // Relaxed: a hint to everybody else.
        self.pinned.load(Ordering::Relaxed)
    }

    /// Pages that are charged for what the node itself has, and for private memory that
    /// can be evicted, by counting: all that the budget has been charged with, where no
    /// page of a file is mapped. Exact while nobody uses the node.
    pub fn charged_pages(&self) -> u64 {
        let chunks = self.frames.counts().present / super::frames::CHUNK_PAGES;
        let frames = chunks.saturating_sub(1) * (super::frames::CHUNK_PAGES + 1);
        let slots = (self.swap.as_ref()).map_or(0, |swap| swap.slots.charged_pages());
        let fixed = self.fixed + frames as u64 + *self.shares.lock();
        fixed + slots + self.windows.charged_pages()
    }

    /// Folios that are not free, in the index or not.
    pub fn folios_in_use(&self) -> usize {
        self.used.load(Ordering::Relaxed) // As in `alloc_folio`.
    }

    /// Pages of frames that folios hold.
    pub fn frames_in_use(&self) -> usize {
        self.frames.counts().used
    }

    /// Pages that frames may take for demand faults.
    pub(crate) fn demand_frames(&self) -> usize {
        self.budget.limit() as usize / 2
    }

    /// Pages that frames may take for read-ahead.
    pub(crate) fn readahead_frames(&self) -> usize {
        let quarters = self.policies.miss_accounting.frame_quarters();
        self.budget.limit() as usize / 4 * quarters
    }

    /// Pages of a window, where read-ahead is as Linux has it.
    pub(crate) fn linux_window(&self) -> u32 {
        (self.readahead_frames() as u32 / 4).min(MAX_WINDOW)
    }

    /// A folio of `pages` pages at `addr`: locked, with frames (unless it is a
    /// hole), in nobody's sight. Or what there is not enough of.
    pub(crate) fn alloc_folio(
        &self,
        cache: &super::PageCache,
        addr: usize,
        pages: usize,
        frames: FrameUse,
    ) -> Result<&Folio, Need> {
        debug_assert!(pages <= BLOCK_PAGES);
        // Relaxed: a bound, not a hand-over.
        if self.used.fetch_add(1, Ordering::Relaxed) >= self.budget.limit() as usize {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return Err(Need::Folio);
        }
        let folio = self.folios.alloc().map(|id| self.folios.get(id));
        let Some(folio) = folio else {
            self.used.fetch_sub(1, Ordering::Relaxed);
            // The system has no memory for more slots: evict, and use those.
            let more = self.budget.free() as usize + BLOCK_PAGES;
            return Err(Need::Pages(more));
        };
        folio.init(cache, addr, pages);
        let frame = match frames {
            FrameUse::Hole => return Ok(folio),
            FrameUse::Demand => self.frames.alloc(pages, self.demand_frames(), 0),
            FrameUse::Readahead => {
                // Demand faults keep an eighth of the pool to themselves.
                let most = self.readahead_frames();
                let room = self.frames.counts().used + pages <= most / 8 * 7;
                room.then(|| self.frames.alloc(pages, most, most as u64 / 16))
                    .flatten()
            }
        };
        match frame {
            Some(frame) => {
                folio.frame.store(frame, Ordering::Relaxed);
                folio.frame_pages.store(pages as u8, Ordering::Relaxed);
                Ok(folio)
            }
            None => {
                self.abandon(folio);
                Err(Need::Frame)
            }
        }
    }

    /// Gives a folio back that was never in the index.
    pub(crate) fn abandon(&self, folio: &Folio) {
        self.free_frames(folio);
        folio.change(flag::DEAD, 0);
        folio.unlock();
        self.put(folio);
    }

    /// Gives a folio's frames back to the pool; the caller holds its lock.
    pub(crate) fn free_frames(&self, folio: &Folio) {
        let frame = folio.frame.swap(NO_FRAME, Ordering::Relaxed);
        if frame != NO_FRAME {
            let pages = folio.frame_pages.load(Ordering::Relaxed) as usize;
            self.frames.free(frame, pages);
            self.budget.notify_release();
        }
    }

    /// The bytes of a folio that is in frames; the caller holds its lock.
    pub(crate) fn frame_address(&self, folio: &Folio) -> *mut u8 {
        self.frames.address(folio.frame.load(Ordering::Relaxed))
    }

    /// All of a folio's bytes; as above.
    pub(crate) fn bytes_of(&self, folio: &Folio) -> *const [u8] {
        let start = self.frame_address(folio).cast_const();
        core::ptr::slice_from_raw_parts(start, folio.pages() * PAGE_SIZE)
    }

    /// True if another folio may be had.
    pub(crate) fn has_folio(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.budget.limit() as usize
    }

    /// Drops a reference; the last one frees a folio that left the index.
    pub(crate) fn put(&self, folio: &Folio) {
        // AcqRel: all that others did with the folio comes before its reuse.
        let refs = folio.refs.fetch_sub(1, Ordering::AcqRel);
        assert!(refs > 0, "folio reference count");
        if refs == 1 {
            debug_assert!(folio.is(flag::DEAD));
            self.folios.free(folio.id());
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The pool gives its chunks back; only the charges are left.
        let chunks = self.frames.counts().present / super::frames::CHUNK_PAGES;
        let frames = chunks.saturating_sub(1) * (super::frames::CHUNK_PAGES + 1);
        let held = self.fixed + *self.shares.lock();
        self.budget.let_go(held);
        self.budget.uncharge(held + frames as u64);
    }
}

/// What a folio's frames are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameUse {
    /// A fault waits.
    Demand,
    /// Nobody waits: only spare frames.
    Readahead,
    /// No frames.
    Hole,
}
