//! The slabs that all address spaces of a process share.
//!
//! VMAs and tree nodes are type-stable across spaces: a fault that found a VMA
//! without a lock may look at its slot when it belongs to another space by
//! then, or when its own space has gone. So spaces own no slots; they borrow
//! them from here, and the slabs outlive them all.

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

use super::grace::GracePeriods;
use super::mmap_lock::{MmapHeld, MmapLock, MmapWriteGuard};
use super::tree::{FANOUT, Node};
use super::vma::Vma;
use super::vma_lock::{VisibleReaders, VmaLock};
use crate::clock::Clock;
use crate::lock::Mutex;
use crate::policy::{MmapVerbs, SpaceLocks, VmaLockKind, VmaReuse};
use crate::slab::Slab;

/// Processors that share no line of visible readers, or of read sections.
const PROCESSORS: usize = 256;

/// Slots of VMAs, up to a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmaSlots {
    /// Slots that were ever handed out: the most VMAs at a time, and those
    /// whose grace periods had not ended by then.
    pub made: u32,
    /// How many times one was handed out again.
    pub reuses: u64,
    /// The most that waited for their grace periods at a time.
    pub waiting: u32,
}

impl VmaSlots {
    /// Bytes of a VMA: three cache lines.
    pub const VMA: usize = size_of::<Vma>();
    /// Bytes of the lock that a VMA has apart with `lock=rwsem`.
    pub const VMA_LOCK: usize = size_of::<VmaLock>();
    /// Bytes of a slot's link in its slab, of either.
    pub const LINK: usize = size_of::<u32>();
}

/// The slabs that address spaces share.
pub struct VmaSlabs {
    /// VMAs of all spaces.
    pub(super) vmas: Slab<Vma>,
    /// Their locks, in spaces where these are apart.
    vma_locks: Arc<Slab<VmaLock>>,
    /// Readers of VMAs that are biased, once there is a space that has such.
    visible: Mutex<Option<Arc<VisibleReaders>>>,
    /// The grace periods that slots wait for, once there is a space whose VMAs do.
    grace: Mutex<Option<Arc<GracePeriods>>>,
    /// Nodes of their trees.
    pub(super) nodes: Arc<Slab<Node<FANOUT>>>,
    /// The number of the last space made.
    last_space: AtomicU64,
}

impl VmaSlabs {
    /// Slabs with room for this many VMAs, in all spaces together.
    pub fn new(max_vmas: u32) -> Arc<Self> {
        // A tree has its roots, and fewer other nodes than VMAs.
        const MOST_NODES: u32 = 1 << 31;
        Self::with_max_nodes(max_vmas, MOST_NODES)
    }

    /// The same, with room for this many tree nodes.
    pub fn with_max_nodes(max_vmas: u32, max_nodes: u32) -> Arc<Self> {
        Arc::new(Self {
            vmas: Slab::new(max_vmas),
            vma_locks: Arc::new(Slab::new(max_vmas)),
            visible: Mutex::new(None),
            grace: Mutex::new(None),
            nodes: Arc::new(Slab::new(max_nodes)),
            last_space: AtomicU64::new(0),
        })
    }

    /// The `mmap_lock` of a new space, with a number that no space has had: 1
    /// and up. The space's VMAs must be of these slabs.
    pub(super) fn new_mmap_lock(&self, clock: Arc<dyn Clock>, locks: SpaceLocks) -> MmapLock {
        // Relaxed: it only has to be another each time.
        let space = self.last_space.fetch_add(1, Ordering::Relaxed) + 1;
        let locks = locks.effective();
        let mut mmap_lock = MmapLock::new(space, clock).with_queue(locks.mmap);
        if locks.reuse == VmaReuse::Rcu {
            let mut grace = self.grace.lock();
            let grace = grace.get_or_insert_with(|| Arc::new(GracePeriods::new(PROCESSORS)));
            mmap_lock = mmap_lock.with_grace_periods(Arc::clone(grace));
        }
        if locks.verbs == MmapVerbs::Shared {
            mmap_lock = mmap_lock.with_shared_verbs();
        }
        match locks.vma {
            VmaLockKind::Refcount => mmap_lock,
            VmaLockKind::Rwsem => {
                let vma_locks = Arc::clone(&self.vma_locks);
                // SAFETY: as long as the slabs, which have the VMAs.
                unsafe { mmap_lock.with_vma_locks(vma_locks) }
            }
            VmaLockKind::Biased => {
                let mut visible = self.visible.lock();
                let make = || Arc::new(VisibleReaders::new(PROCESSORS));
                let visible = visible.get_or_insert_with(make);
                // SAFETY: as above.
                unsafe { mmap_lock.with_visible_readers(Arc::clone(visible)) }
            }
        }
    }

    /// A slot for a VMA of the space of `mmap`. Where slots wait for their grace periods,
    /// a thread that finds none free waits too: for lookups, which wait for nothing.
    pub(super) fn alloc_vma(&self, mmap: &MmapWriteGuard<'_>) -> Option<u32> {
        let grace = mmap.mmap_lock().grace();
        loop {
            let slot = self.vmas.alloc();
            if slot.is_some() || !grace?.wait(|slot| self.vmas.free(slot)) {
                return slot;
            }
        }
    }

    /// Takes the slot of a VMA back that lookups of the space of `mmap` may have found.
    pub(super) fn free_vma(&self, mmap: &MmapWriteGuard<'_>, slot: u32) {
        match mmap.mmap_lock().grace() {
            Some(grace) => grace.retire(slot, |slot| self.vmas.free(slot)),
            None => self.vmas.free(slot),
        }
    }

    /// Bytes that VMAs, their locks, tree nodes, visible readers and read sections take up,
    /// free ones included.
    pub fn bytes(&self) -> usize {
        let visible = self.visible.lock();
        let visible = visible.as_ref().map_or(0, |visible| visible.bytes());
        let grace = self.of_grace(GracePeriods::bytes);
        self.vmas.bytes() + self.vma_locks.bytes() + self.nodes.bytes() + visible + grace
    }

    /// VMAs in use, by counting. Exact while no space changes.
    pub fn vmas_in_use(&self) -> u32 {
        self.vmas.in_use() - self.of_grace(GracePeriods::waiting) as u32
    }

    fn of_grace(&self, of: fn(&GracePeriods) -> usize) -> usize {
        let grace = self.grace.lock();
        grace.as_ref().map_or(0, |grace| of(grace))
    }

    /// The numbers of its VMAs' slots.
    pub fn vma_slots(&self) -> VmaSlots {
        VmaSlots {
            made: self.vmas.len(),
            reuses: self.vmas.reuses(),
            waiting: self.of_grace(GracePeriods::most_waiting) as u32,
        }
    }

    /// VMA locks that are apart from their VMAs, by counting. Exact while no
    /// space changes.
    pub fn vma_locks_in_use(&self) -> u32 {
        self.vma_locks.in_use()
    }

    /// Tree nodes in use, by counting. Exact while no space changes.
    pub fn nodes_in_use(&self) -> u32 {
        self.nodes.in_use()
    }

    /// How many times a VMA's slot was handed out again.
    pub fn vma_reuses(&self) -> u64 {
        self.vmas.reuses()
    }
}
