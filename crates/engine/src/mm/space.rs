//! An address space: mappings by address.
//!
//! ```text
//!   AddressSpace ── tree ──► leaf [ start → index ] ──► Vma (slab of VmaSlabs)
//!        │                                               ▲
//!        └─ mmap_lock: shape          its own count: faults in progress
//! ```
//!
//! The verbs, one a file: `mmap` (`map.rs`), `munmap` and `exit` (`unmap.rs`),
//! `mprotect` (`protect.rs`), `madvise` (`advise.rs`), `mremap` (`remap.rs`)
//! and `fork` (`fork.rs`) take `mmap_lock` for write; `find` and `for_each_vma` (`query.rs`) work under either;
//! `lock_vma` ([`find`](super::find)) takes nothing. `split.rs`, `merge.rs`
//! and `modify.rs` have the steps of the first ones.
//!
//! Invariants whenever `mmap_lock` is free: the tree's VMAs do not overlap,
//! each is attached and belongs to this space, and no two neighbours could be
//! one (`validate` in `query.rs`).

use core::ops::Range;

use sync::Arc;

use super::mmap_lock::MmapLock;
use super::tree::{Entry, NoNodes, Parts, Tree, Walk};
use super::vma::Vma;
use super::vma_lock::NoVmaLock;
use super::vma_slabs::VmaSlabs;
use crate::clock::Clock;
use crate::lock::WaitSnapshot;
use crate::mmu::soft::{ARENA_SHIFT, ARENAS, FIRST_ARENA};
use crate::policy::{MmapVerbs, SpaceLocks};
use crate::{PAGE_SHIFT, PAGE_SIZE};

/// Where verbs share the tree it has a root for each arena of windows: VMAs of threads that map beside one another are in arenas of
/// their own. Windows of real page tables are where the kernel puts them, mostly in one part.
const PARTS: Parts = Parts::new(FIRST_ARENA, ARENA_SHIFT, ARENAS);

/// The reason why a verb failed, wholly or in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmError {
    /// The range has no page. Nothing was done.
    Empty,
    /// An end of the range is not at a page boundary. Nothing was done.
    Misaligned,
    /// `mmap`, `mremap`: something is mapped there; or the pages are anonymous
    /// memory that is mapped elsewhere. Nothing was done.
    Overlap,
    /// `mmap`: the backing has no pages so far out. `mremap`: no addresses are
    /// so far out. Nothing was done.
    Overflow,
    /// A part of the range is not mapped. `mprotect`, `madvise`: the change was
    /// made to all that is. `mremap`: nothing was done.
    Unmapped,
    /// `dont_need`: a page is locked in memory. That VMA's part was left as it was.
    Locked,
    /// `free`: a part is a private mapping of a file. It was left as it was. `move_to`: it
    /// is for private memory alone.
    NotAnonymous,
    /// No VMA or no tree node is left. `mmap`, `munmap` and `mremap` have done
    /// nothing; `mprotect` and `madvise` have changed the range up to some VMA.
    NoMemory,
}

impl From<NoNodes> for MmError {
    fn from(_: NoNodes) -> Self {
        Self::NoMemory
    }
}

impl From<NoVmaLock> for MmError {
    fn from(_: NoVmaLock) -> Self {
        Self::NoMemory
    }
}

/// The mappings of one space. It must be empty when it is dropped: `exit` comes
/// first.
pub struct AddressSpace {
    /// Where its VMAs come from; immutable.
    pub(super) slabs: Arc<VmaSlabs>,
    /// Taken for write to change the space's shape. Also has the number of the
    /// space, which no other space of these slabs ever has.
    pub(super) mmap_lock: MmapLock,
    /// VMAs by start. Changed under `mmap_lock` for write, or leaf by leaf by
    /// verbs that share it; lookups need no lock.
    pub(super) tree: Tree,
}

impl AddressSpace {
    /// An empty space. Fails with `NoMemory` only.
    pub fn new(slabs: Arc<VmaSlabs>, clock: Arc<dyn Clock>) -> Result<Self, MmError> {
        Self::with_lock(slabs, clock, SpaceLocks::default())
    }

    /// The same, with these locks, or this kind of lock in its VMAs. Spaces of one
    /// machine may have different ones.
    pub fn with_lock(
        slabs: Arc<VmaSlabs>,
        clock: Arc<dyn Clock>,
        locks: impl Into<SpaceLocks>,
    ) -> Result<Self, MmError> {
        let mmap_lock = slabs.new_mmap_lock(clock, locks.into());
        let nodes = Arc::clone(&slabs.nodes);
        let tree = match mmap_lock.locks().verbs {
            MmapVerbs::Alone => Tree::new(nodes)?,
            MmapVerbs::Shared => Tree::shared(nodes, PARTS)?,
        };
        Ok(Self {
            tree,
            mmap_lock,
            slabs,
        })
    }

    /// The number of the space, which no other space of its slabs has.
    pub fn id(&self) -> u64 {
        self.mmap_lock.space()
    }

    /// The lock over the shape of the space, for callers that look at several
    /// VMAs, or at one and the page tables.
    pub fn mmap_lock(&self) -> &MmapLock {
        &self.mmap_lock
    }

    /// How many VMAs there are. Exact under `mmap_lock`.
    pub fn map_count(&self) -> usize {
        self.tree.len()
    }

    /// Waits, and lookups in vain, up to now.
    pub fn lock_stats(&self) -> LockStats {
        let misses = self.mmap_lock.vma_misses();
        LockStats {
            mmap_read: self.mmap_lock.read_waits().snapshot(),
            mmap_write: self.mmap_lock.write_waits().snapshot(),
            vma_write: self.mmap_lock.vma_waits().snapshot(),
            thaw: self.mmap_lock.thaw_waits().snapshot(),
            miss_other_space: misses.other_space.get(),
            miss_other_range: misses.other_range.get(),
            miss_detached: misses.detached.get(),
        }
    }

    pub(super) fn vma(&self, entry: Entry) -> &Vma {
        self.slabs.vmas.get(entry.vma)
    }

    /// The tree's answer to a holder of `mmap_lock`: there is no writer
    /// to be in the way.
    pub(super) fn exact<T, E: core::fmt::Debug>(
        &self,
        lookup: impl FnOnce(&Tree, &mut Walk) -> Result<T, E>,
    ) -> T {
        lookup(&self.tree, &mut Walk::default()).expect("no writer under mmap_lock")
    }
}

/// Statistics of one space's locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Takings of `mmap_lock` for read.
    pub mmap_read: WaitSnapshot,
    /// Takings of `mmap_lock` for write.
    pub mmap_write: WaitSnapshot,
    /// Writers' waits for the readers of a VMA. (Readers of a VMA never wait.)
    pub vma_write: WaitSnapshot,
    /// Waits for private memory while the process forked.
    pub thaw: WaitSnapshot,
    /// VMAs that were found, and were another space's by then.
    pub miss_other_space: u64,
    /// VMAs that were found, and did not have the address any more.
    pub miss_other_range: u64,
    /// VMAs that were found, and were detached by then.
    pub miss_detached: u64,
}

impl LockStats {
    /// Lookups that found a VMA which was reused, moved or unmapped before it
    /// was locked, and noticed.
    pub fn caught_reuses(&self) -> u64 {
        self.miss_other_space + self.miss_other_range + self.miss_detached
    }
}

/// An error unless the range is one of whole pages, and not empty.
pub(super) fn check_range(range: &Range<usize>) -> Result<(), MmError> {
    if !range.start.is_multiple_of(PAGE_SIZE) || !range.end.is_multiple_of(PAGE_SIZE) {
        return Err(MmError::Misaligned);
    }
    if range.is_empty() {
        return Err(MmError::Empty);
    }
    Ok(())
}

/// Pages of a range.
pub(super) fn pages(range: &Range<usize>) -> u64 {
    (range.len() >> PAGE_SHIFT) as u64
}
