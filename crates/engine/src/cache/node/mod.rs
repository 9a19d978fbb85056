//! A node: the frames, folios, lists and ghosts under one budget, as a memory cgroup of
//! Linux has a limit and lists of its own. It has nothing to do with NUMA.

use super::DirtyPages;
use super::arena::Arenas;
use super::frames::{FrameMemory, Frames};
use super::index::Index;
use super::pins::Pins;
use super::spurious::SpuriousFaults;
use crate::anon::Habits;
use crate::budget::Budget;
use crate::lock::Bell;
use crate::page::PAGE_SIZE;
use crate::policy::Policies;
use crate::reclaim::Copies;
use crate::reclaim::Lru;
use crate::reclaim::anonymous::{Balance, PrivateMemory};
use crate::stats::NodeStats;
use crate::store::ReadsUnderWay;
use crate::swap::Swap;
use crate::{Clock, Mmu};
use folios::Folios;
use size::Size;
use sync::Arc;

mod folios;
mod size;

pub(crate) use folios::FrameUse;

/// The least budget that a node can work with, in bytes.
pub const MIN_BYTES: usize = 8 << 20;
/// The largest window of read-ahead: 8 MiB, in pages.
pub(crate) const MAX_WINDOW: u32 = 2048;
/// The largest budget, in pages: folios and frames have numbers of 32 bits.
const MOST_PAGES: usize = 1 << 31;

/// Why a node could not be made or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeError {
    /// Fewer bytes than [`MIN_BYTES`].
    BudgetTooSmall,
    /// More than the node was made for (see [`NodeOptions::most_bytes`]).
    BudgetTooLarge,
    /// The enclosing budget has not that much, or the system has no memory for the
    /// tables of so large a budget.
    NoMemory,
    /// Maps, pins and private memory hold more than that leaves to faults.
    Held,
}

/// The options of a new node; by default nothing special.
#[derive(Default)]
pub struct NodeOptions {
    /// The limit of later raises of the budget. Less than the budget: no raise.
    pub most_bytes: usize,
    /// The policies of retries and of read-ahead. That of the VMA lock is the
    /// address space's, and not looked at here.
    pub policies: Policies,
    /// Where anonymous memory goes that is evicted.
    pub swap: Option<Arc<Swap>>,
    /// Called when memory is short and the node begins to evict, in the thread that needs the memory: a fault's too. It
    /// uses no heap, takes no lock, and returns at once.
    pub on_reclaim: Option<fn()>,
    /// The reads that reclaim asks for when it finds nothing else: those that are over and that nobody waits for still have
    /// their folios locked.
    pub reads: Option<Arc<dyn ReadsUnderWay>>,
}

/// Everything under one budget.
pub struct Node {
    /// The limit of resident pages.
    pub budget: Arc<Budget>,
    /// Page tables of the space that shows this node's pages.
    pub mmu: Arc<dyn Mmu>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The statistics.
    pub stats: NodeStats,
    /// Where anonymous memory goes that is evicted. Immutable.
    pub swap: Option<Arc<Swap>>,
    /// The policies of retries and of read-ahead. Immutable.
    pub policies: Policies,
    /// As [`NodeOptions::on_reclaim`]. Immutable.
    pub(crate) on_reclaim: Option<fn()>,
    /// As [`NodeOptions::reads`]. Immutable.
    pub(crate) reads: Option<Arc<dyn ReadsUnderWay>>,
    /// All folios.
    pub(crate) folios: Folios,
    /// Folios by address.
    pub(crate) index: Index,
    pub(crate) frames: Frames,
    /// Which folios go next.
    pub(crate) lru: Lru,
    /// Where windows of files are.
    pub(crate) arenas: Arenas,
    /// Reclaim's state of private memory.
    pub(crate) private: PrivateMemory,
    /// The habits of small private mappings.
    pub(crate) habits: Box<Habits>,
    /// Which of the two goes first.
    pub(crate) balance: Balance,
    /// The pages that faults took for mapped a moment ago.
    pub(crate) spurious_faults: Box<SpuriousFaults>,
    pub(crate) pins: Pins,
    /// Of files that are written to.
    pub(crate) dirty: DirtyPages,
    /// Rung by evictions; the thread that writes back ahead of need waits for it.
    pub(crate) evictions: Bell,
    size: Size,
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
            on_reclaim,
            reads,
        } = options;
        let pages = budget.limit() as usize;
        if pages * PAGE_SIZE < MIN_BYTES {
            return Err(NodeError::BudgetTooSmall);
        }
        if pages > MOST_PAGES {
            return Err(NodeError::NoMemory);
        }
        let no_memory = NodeError::NoMemory;
        let most = (most_bytes / PAGE_SIZE).clamp(pages, MOST_PAGES);
        let order = policies.miss_accounting.eviction_order();
        let index = Index::new(pages).ok_or(no_memory)?;
        let lru = Lru::new(order, pages).ok_or(no_memory)?;
        let copies = match mmu.calls_wait() {
            true => Copies::under(pages as u64),
            false => 0,
        };
        let private = PrivateMemory::new(copies).ok_or(no_memory)?;
        let frames = Frames::new(frames, budget.clone()).ok_or(no_memory)?;
        let tables = index.bytes() + lru.bytes() + private.batches.bytes() + frames.table_bytes();
        let size = Size::charge(&budget, pages, most, tables)?;
        if let Some(swap) = &swap {
            // The words of the first slots; those of others come with evictions.
            swap.slots.prepare();
        }
        Ok(Arc::new(Self {
            folios: Folios::new(most as u32),
            index,
            frames,
            lru,
            arenas: Arenas::default(),
            private,
            habits: Box::default(),
            balance: Balance::default(),
            spurious_faults: Box::default(),
            stats: NodeStats::default(),
            pins: Pins::default(),
            dirty: DirtyPages::default(),
            evictions: Bell::default(),
            policies,
            on_reclaim,
            reads,
            size,
            budget,
            mmu,
            clock,
            swap,
        }))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end_writes();
        // The pool gives its chunks back; only the charges are left.
        self.size.give_back(&self.budget, &self.frames);
    }
}
