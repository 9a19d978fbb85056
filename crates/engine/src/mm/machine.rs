//! What all address spaces of a process share: the slabs.
//!
//! VMAs and tree nodes are type-stable across spaces: a fault that found a VMA
//! without a lock may look at its slot when it belongs to another space by
//! then, or when its own space has gone. So spaces own no slots; they borrow
//! them from here, and the machine outlives them all.

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

use super::mmap_lock::MmapLock;
use super::tree::{FANOUT, Node};
use super::vma::Vma;
use super::vma_lock::{VisibleReaders, VmaLock};
use crate::clock::Clock;
use crate::lock::Mutex;
use crate::policy::{SpaceLocks, VmaLockKind};
use crate::slab::Slab;

/// Processors that share no line of visible readers.
const PROCESSORS: usize = 256;

/// The slabs that address spaces share.
pub struct Machine {
    /// VMAs of all spaces.
    pub(super) vmas: Slab<Vma>,
    /// Their locks, in spaces where these are apart.
    vma_locks: Arc<Slab<VmaLock>>,
    /// Readers of VMAs that are biased, once there is a space that has such.
    visible: Mutex<Option<Arc<VisibleReaders>>>,
    /// Nodes of their trees.
    pub(super) nodes: Arc<Slab<Node<FANOUT>>>,
    /// The number of the last space made.
    last_space: AtomicU64,
}

impl Machine {
    /// A machine with room for this many VMAs, in all spaces together.
    pub fn new(max_vmas: u32) -> Arc<Self> {
        // A tree has a root, and fewer other nodes than VMAs.
        const MOST_NODES: u32 = 1 << 31;
        Self::with_max_nodes(max_vmas, MOST_NODES)
    }

    /// The same, with room for this many tree nodes.
    pub fn with_max_nodes(max_vmas: u32, max_nodes: u32) -> Arc<Self> {
        Arc::new(Self {
            vmas: Slab::new(max_vmas),
            vma_locks: Arc::new(Slab::new(max_vmas)),
            visible: Mutex::new(None),
            nodes: Arc::new(Slab::new(max_nodes)),
            last_space: AtomicU64::new(0),
        })
    }

    /// The `mmap_lock` of a new space, with a number that no space has had: 1
    /// and up. The space's VMAs must be those of this machine.
    pub(super) fn new_mmap_lock(&self, clock: Arc<dyn Clock>, locks: SpaceLocks) -> MmapLock {
        // Relaxed: it only has to be another each time.
        let space = self.last_space.fetch_add(1, Ordering::Relaxed) + 1;
        let mmap_lock = MmapLock::new(space, clock).with_queue(locks.mmap);
        match locks.vma {
            VmaLockKind::Refcount => mmap_lock,
            VmaLockKind::Rwsem => {
                let vma_locks = Arc::clone(&self.vma_locks);
                // SAFETY: as long as the machine, which has the VMAs.
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

    /// Bytes that VMAs, their locks, tree nodes and visible readers take up, free
    /// ones included.
    pub fn bytes(&self) -> usize {
        let visible = self.visible.lock();
        let visible = visible.as_ref().map_or(0, |visible| visible.bytes());
        self.vmas.bytes() + self.vma_locks.bytes() + self.nodes.bytes() + visible
    }

    /// VMAs in use, by counting. Exact while no space changes.
    pub fn vmas_in_use(&self) -> u32 {
        self.vmas.in_use()
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
