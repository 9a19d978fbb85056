//! `mmap_lock`: it protects the shape of a space, and has the sequence that ends
//! all VMA write locks at once.
//!
//! A VMA is write-locked while its `lock_seq` equals the space's sequence and
//! somebody holds `mmap_lock` for write. Letting `mmap_lock` go adds one to the
//! sequence, and so unlocks every VMA that was write-locked under it, however
//! many, with a single store.
//!
//! **False answers.** The sequence has 64 bits and only grows: it does not come
//! round in a machine's life, so "write-locked" is never remembered from long
//! ago, as it can be with 32 bits. Two false answers remain in a reader, which
//! takes them without `mmap_lock`:
//! - *locked though it is not*: a slot reused from another space may by chance
//!   carry that space's sequence number, equal to ours. The reader gives up and
//!   goes through `mmap_lock`; nothing is wrong, only slower.
//! - *unlocked though it is locked*: possible only before the reader holds a
//!   reference. It asks again with one, and `vma_lock` says why that answer
//!   can be trusted.

use core::marker::PhantomData;

use sync::Arc;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::stat::Counter;
use sync::wait::WaitWord;

use super::grace::{GracePeriods, ReadSection};
use super::vma::Vma;
use super::vma_lock::{MAX_READERS, VisibleReaders, VmaLock};
use crate::clock::Clock;
use crate::lock::group::{GroupLock, Other, Verb};
use crate::lock::order::{self, Held};
use crate::lock::{ReadGuard, RwSem, WaitStats, WriteGuard};
use crate::policy::{MmapQueue, MmapVerbs, SpaceLocks, VmaLockKind, VmaReuse};
use crate::slab::Slab;

/// The `mmap_lock` of one address space.
pub struct MmapLock {
    sem: RwSem,
    /// The order in which waiting readers and writers get the lock. Immutable.
    queue: MmapQueue,
    /// Where verbs may share the lock: keeps them and its other holders apart. Immutable.
    group: Option<GroupLock>,
    shared: Shared,
    /// Immutable.
    clock: Arc<dyn Clock>,
    /// Where [`VmaLockKind::Rwsem`] has its locks from. Immutable.
    vma_locks: Option<Arc<Slab<VmaLock>>>,
    /// Waits of writers for the readers of a VMA, of all VMAs together.
    vma_waits: WaitStats,
    /// Why faults could not lock a VMA without `mmap_lock`.
    vma_misses: VmaMisses,
    /// Times a VMA was biased.
    vma_biases: Counter,
    /// Ends of a bias, by how long they took.
    vma_revocations: WaitStats,
    /// Odd while VMAs are frozen. Raised under `mmap_lock` for write, and by a thaw.
    frozen: WaitWord,
    /// Waits for VMAs to be thawed.
    thaw_waits: WaitStats,
}

/// The fields that every fault reads, on another cache line than those that takers of the lock write.
#[derive(Debug)]
#[repr(align(64))]
struct Shared {
    /// `mm_lock_seq`. Written under `mmap_lock` for write only.
    seq: AtomicU64,
    /// Which space this is, not 0; no other ever has the same. Immutable.
    space: u64,
    /// How many readers a VMA of this space may have. Immutable.
    max_readers: u32,
    /// The kind of lock of its VMAs. Immutable.
    kind: VmaLockKind,
    /// Where readers of [`VmaLockKind::Biased`] show themselves. Immutable.
    visible: Option<Arc<VisibleReaders>>,
    /// The grace periods of [`VmaReuse::Rcu`]. Immutable.
    grace: Option<Arc<GracePeriods>>,
}

/// How often a fault found a VMA and could not lock it.
#[derive(Debug, Default)]
pub struct VmaMisses {
    /// The slot had been reused for another space.
    pub other_space: Counter,
    /// The VMA did not cover the address any more: its slot had been reused
    /// in the same space, or it had been split, shrunk or moved.
    pub other_range: Counter,
    /// It was detached.
    pub detached: Counter,
    /// It was write-locked.
    pub write_locked: Counter,
    /// It had all the readers it may have.
    pub limit: Counter,
}

impl MmapLock {
    /// The lock of the space numbered `space`: not 0, and never used before.
    pub fn new(space: u64, clock: Arc<dyn Clock>) -> Self {
        Self::with_max_readers(space, clock, MAX_READERS)
    }

    /// The same, where a VMA may have no more than `max_readers` readers. The
    /// greatest is [`MAX_READERS`]; tests of the limit set it low.
    pub fn with_max_readers(space: u64, clock: Arc<dyn Clock>, max_readers: u32) -> Self {
        assert!(space != 0, "0 means no space");
        assert!(max_readers <= MAX_READERS);
        Self {
            sem: RwSem::with_queue(Arc::clone(&clock), MmapQueue::default()),
            queue: MmapQueue::default(),
            group: None,
            shared: Shared {
                // A slot that was never locked has 0.
                seq: AtomicU64::new(1),
                space,
                max_readers,
                kind: VmaLockKind::Refcount,
                visible: None,
                grace: None,
            },
            clock,
            vma_locks: None,
            vma_waits: WaitStats::new(),
            vma_misses: VmaMisses::default(),
            vma_biases: Counter::new(),
            vma_revocations: WaitStats::new(),
            frozen: WaitWord::new(0),
            thaw_waits: WaitStats::new(),
        }
    }

    /// The same, with this order of waiting readers and writers.
    pub fn with_queue(mut self, queue: MmapQueue) -> Self {
        self.sem = RwSem::with_queue(Arc::clone(&self.clock), queue);
        self.queue = queue;
        self
    }

    /// The same, which verbs that change one VMA alone may share. For the kind of VMA lock that is a count.
    pub fn with_shared_verbs(mut self) -> Self {
        self.group = Some(GroupLock::new());
        self
    }

    /// The same, of a space whose VMAs have semaphores out of `vma_locks`.
    ///
    /// # Safety
    /// That slab lives as long as every VMA that is initialised under this lock.
    pub unsafe fn with_vma_locks(mut self, vma_locks: Arc<Slab<VmaLock>>) -> Self {
        self.shared.kind = VmaLockKind::Rwsem;
        self.vma_locks = Some(vma_locks);
        self
    }

    /// The same, of a space whose VMAs can be biased: their readers show
    /// themselves in `visible`.
    ///
    /// # Safety
    /// That table lives as long as every VMA that is initialised under this lock.
    pub unsafe fn with_visible_readers(mut self, visible: Arc<VisibleReaders>) -> Self {
        self.shared.kind = VmaLockKind::Biased;
        self.shared.visible = Some(visible);
        self
    }

    /// The same, of a space whose VMAs wait for their grace periods before they are reused.
    pub fn with_grace_periods(mut self, grace: Arc<GracePeriods>) -> Self {
        self.shared.grace = Some(grace);
        self
    }

    /// Takes the lock for reading: the shape of the space stays as it is.
    pub fn read(&self) -> MmapReadGuard<'_> {
        order::check(order::MMAP_LOCK);
        let other = self.group.as_ref().map(GroupLock::other);
        MmapReadGuard {
            lock: self,
            _sem: self.sem.read(),
            _other: other,
            _order: Held::new(),
        }
    }

    /// Shares the lock with verbs that change one VMA alone. `None` if that is not to be, or takes too long.
    pub(super) fn share(&self) -> Option<MmapSharedGuard<'_>> {
        let group = self.group.as_ref()?;
        order::check(order::MMAP_LOCK);
        Some(MmapSharedGuard {
            lock: self,
            _verb: group.verb()?,
            _order: Held::new(),
        })
    }

    /// Keeps such verbs out, if that needs no waiting.
    fn try_other(&self) -> Option<Option<Other<'_>>> {
        match &self.group {
            None => Some(None),
            Some(group) => group.try_other().map(Some),
        }
    }

    /// Takes the lock for reading if that needs no waiting.
    pub fn try_read(&self) -> Option<MmapReadGuard<'_>> {
        let other = self.try_other()?;
        Some(MmapReadGuard {
            lock: self,
            _sem: self.sem.try_read()?,
            _other: other,
            _order: Held::new(),
        })
    }

    /// Takes the lock for writing: VMAs may be write-locked, attached,
    /// detached, and changed.
    pub fn write(&self) -> MmapWriteGuard<'_> {
        order::check(order::MMAP_LOCK);
        let other = self.group.as_ref().map(GroupLock::other);
        self.write_guard(self.sem.write(), other)
    }

    /// The same in a fork, for the space of the child, which no other thread uses yet.
    pub(super) fn write_in_fork(&self, parent: &MmapWriteGuard<'_>) -> MmapWriteGuard<'_> {
        assert!(!core::ptr::eq(self, parent.lock), "its own parent");
        let other = self.group.as_ref().map(GroupLock::other);
        self.write_guard(self.sem.write(), other)
    }

    /// Takes the lock for writing if that needs no waiting.
    pub fn try_write(&self) -> Option<MmapWriteGuard<'_>> {
        let other = self.try_other()?;
        Some(self.write_guard(self.sem.try_write()?, other))
    }

    fn write_guard<'a>(
        &'a self,
        sem: WriteGuard<'a>,
        other: Option<Other<'a>>,
    ) -> MmapWriteGuard<'a> {
        MmapWriteGuard {
            lock: self,
            // Relaxed: only writers store it, and they come one after another.
            seq: self.shared.seq.load(Relaxed),
            not_sync: PhantomData,
            _sem: sem,
            _other: other,
            _order: Held::new(),
        }
    }

    /// The number of this space.
    pub fn space(&self) -> u64 {
        self.shared.space
    }

    /// The kind of lock of this space's VMAs.
    #[inline]
    pub fn kind(&self) -> VmaLockKind {
        self.shared.kind
    }

    /// The kinds of this lock, and of those of the space's VMAs.
    pub fn locks(&self) -> SpaceLocks {
        SpaceLocks {
            vma: self.kind(),
            mmap: self.queue,
            reuse: match self.grace() {
                Some(_) => VmaReuse::Rcu,
                None => VmaReuse::TypeSafe,
            },
            verbs: match self.group {
                Some(_) => MmapVerbs::Shared,
                None => MmapVerbs::Alone,
            },
        }
    }

    /// Waits for the lock itself, for reading.
    pub fn read_waits(&self) -> &WaitStats {
        self.sem.read_waits()
    }

    /// Waits for the lock itself, for writing.
    pub fn write_waits(&self) -> &WaitStats {
        self.sem.write_waits()
    }

    /// Waits of writers for the readers of a VMA, of all VMAs of this space.
    pub fn vma_waits(&self) -> &WaitStats {
        &self.vma_waits
    }

    /// Why faults could not lock a VMA without this lock.
    pub fn vma_misses(&self) -> &VmaMisses {
        &self.vma_misses
    }

    /// Times a VMA of this space was biased.
    pub fn vma_biases(&self) -> &Counter {
        &self.vma_biases
    }

    /// Times a writer ended a VMA's bias, by how long that took.
    pub fn vma_revocations(&self) -> &WaitStats {
        &self.vma_revocations
    }

    /// Waits of faults and verbs for VMAs that were kept as they are while the process
    /// forked.
    pub fn thaw_waits(&self) -> &WaitStats {
        &self.thaw_waits
    }

    /// Odd while VMAs are frozen.
    pub(super) fn frozen(&self) -> &WaitWord {
        &self.frozen
    }

    /// Readers of a VMA by its bias as of now, for assertions and for printing.
    pub fn visible_readers(&self, vma: &Vma) -> u32 {
        let visible = self.shared.visible.as_ref();
        visible.map_or(0, |visible| visible.readers(vma))
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// For [`VmaLockKind::Rwsem`].
    pub(super) fn vma_locks(&self) -> &Slab<VmaLock> {
        (self.vma_locks.as_deref()).expect("a space whose VMAs have semaphores")
    }

    /// For [`VmaLockKind::Biased`].
    #[inline]
    pub(super) fn visible(&self) -> &Arc<VisibleReaders> {
        (self.shared.visible.as_ref()).expect("a space whose VMAs can be biased")
    }

    /// For [`VmaReuse::Rcu`].
    pub(super) fn grace(&self) -> Option<&GracePeriods> {
        self.shared.grace.as_deref()
    }

    /// Begins a lookup without the lock: while it lasts no VMA that it finds is reused, if
    /// that is the policy.
    #[inline]
    pub(super) fn read_section(&self) -> Option<ReadSection<'_>> {
        self.grace().map(GracePeriods::read_section)
    }

    pub(super) fn max_readers(&self) -> u32 {
        self.shared.max_readers
    }

    /// The sequence, for a first look that decides nothing.
    pub(super) fn seq_hint(&self) -> u64 {
        self.shared.seq.load(Relaxed)
    }

    /// The sequence, for a reader that holds a reference to the VMA.
    pub(super) fn seq(&self) -> u64 {
        // Acquire pairs with the Release in MmapWriteGuard's drop: if the VMA's
        // write lock has ended, all that was done under it is visible.
        self.shared.seq.load(Acquire)
    }
}

impl core::fmt::Debug for MmapLock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MmapLock")
            .field("sem", &self.sem)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// `mmap_lock` held for reading.
#[derive(Debug)]
pub struct MmapReadGuard<'a> {
    lock: &'a MmapLock,
    _sem: ReadGuard<'a>,
    /// Let go after the lock itself.
    _other: Option<Other<'a>>,
    _order: Held<{ order::MMAP_LOCK }>,
}

/// `mmap_lock` held for writing. Dropping it ends all VMA write locks that were
/// taken under it.
#[derive(Debug)]
pub struct MmapWriteGuard<'a> {
    lock: &'a MmapLock,
    /// The sequence while the lock is held.
    seq: u64,
    /// A reference to the guard proves that there is one writer: it must not
    /// get to a second thread.
    not_sync: PhantomData<*const ()>,
    _sem: WriteGuard<'a>,
    /// Let go after the lock itself.
    _other: Option<Other<'a>>,
    _order: Held<{ order::MMAP_LOCK }>,
}

/// `mmap_lock` shared with verbs that change one VMA alone: see `mm/shared.rs`.
#[derive(Debug)]
pub struct MmapSharedGuard<'a> {
    lock: &'a MmapLock,
    _verb: Verb<'a>,
    _order: Held<{ order::MMAP_LOCK }>,
}

impl MmapSharedGuard<'_> {
    /// The lock that is shared.
    pub(super) fn mmap_lock(&self) -> &MmapLock {
        self.lock
    }
}

impl MmapWriteGuard<'_> {
    /// The sequence that a VMA's `lock_seq` has while it is write-locked under
    /// this guard.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }
}

impl Drop for MmapWriteGuard<'_> {
    fn drop(&mut self) {
        // Before the lock itself is let go, which the field does after this.
        // Release pairs with the Acquire in `MmapLock::seq`.
        self.lock.shared.seq.store(self.seq + 1, Release);
    }
}

/// Proof that `mmap_lock` is held, for reading or for writing.
pub trait MmapHeld: sealed::Sealed {
    /// The lock that is held.
    fn mmap_lock(&self) -> &MmapLock;
}

impl MmapHeld for MmapReadGuard<'_> {
    fn mmap_lock(&self) -> &MmapLock {
        self.lock
    }
}

impl MmapHeld for MmapWriteGuard<'_> {
    fn mmap_lock(&self) -> &MmapLock {
        self.lock
    }
}

mod sealed {
    /// Only the guards of this module are proofs.
    pub trait Sealed {}
    impl Sealed for super::MmapReadGuard<'_> {}
    impl Sealed for super::MmapWriteGuard<'_> {}
}
