//! The per-VMA lock: the interface for faults and writers of VMAs. The kind of lock is
//! the space's policy ([`VmaLockKind`](crate::policy::VmaLockKind)), the same for all its VMAs:
//!
//! | file | the lock is |
//! |---|---|
//! | [`refcount`] | one count in the VMA (document 004); the default |
//! | [`baseline`] | a semaphore in an allocation of its own, and a flag: its baseline |
//! | [`biased`] | the count, and for VMAs that many processors read a word of each |
//!
//! Lock rules are the same. **Readers** are faults, and do not wait to get the lock: for reading a
//! VMA is locked with or without `mmap_lock`. **Writers** hold `mmap_lock` for
//! write, or share it (`mm/shared.rs`), wait for the readers that are there, and keep others out until
//! `mmap_lock` is let go. A thread that holds a VMA for reading may sleep: in reclaim, in a few
//! looks at the file, and with some policies over its waits. It must not wait for
//! `mmap_lock`, nor for a thread that may.

pub mod baseline;
pub mod biased;
pub mod refcount;
pub mod visible;

use sync::atomic::Ordering::Relaxed;

/// The `lock_seq` of a VMA that stays write-locked when `mmap_lock` is let go. No space
/// comes to this sequence; see `mm::freeze`.
pub const FROZEN: u64 = u64::MAX;

pub use self::baseline::{NoVmaLock, VmaLock};
pub use self::refcount::{MAX_READERS, WRITER};
use self::visible::Visible;
pub use self::visible::VisibleReaders;
use super::mmap_lock::{MmapHeld, MmapLock, MmapReadGuard, MmapWriteGuard};
use super::vma::{Attributes, Vma};
use crate::lock::order::{self, Held};
use crate::policy::VmaLockKind::{Biased, Refcount, Rwsem};

/// Why a VMA could not be locked for reading. None of these is an error of the
/// caller: it takes `mmap_lock` instead, or looks the address up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// It is not, or no more, in a space's tree. Look again.
    Detached,
    /// It is another mapping now. Look again.
    Reused,
    /// It is write-locked. Go through `mmap_lock`.
    WriteLocked,
    /// It has all the readers that it may have. Go through `mmap_lock`.
    Limit,
    /// It is write-locked while the process forks, and `mmap_lock` is of no use. Wait
    /// for the thaw. The answer to holders of `mmap_lock` only; to others it is
    /// `WriteLocked`.
    Frozen,
}

/// A VMA locked for reading; dropping it is `vma_end_read`.
///
/// While it lives the VMA stays attached, and its space, range and attributes
/// stay as they are. Do not wait for `mmap_lock` with one in hand: its holder
/// may be waiting for this reader.
#[derive(Debug)]
#[must_use]
pub struct VmaRead<'a> {
    vma: &'a Vma,
    held: ReadBy<'a>,
    _order: Held<{ order::VMA_READ }>,
}

/// The reference that a reader gives back.
#[derive(Debug, Clone, Copy)]
enum ReadBy<'a> {
    /// One of the count.
    Count,
    /// A place in the semaphore.
    Sem(&'a VmaLock),
    /// The word that says that it reads.
    Visible(Visible<'a>),
}

impl<'a> VmaRead<'a> {
    /// The VMA has just been locked in this way.
    #[inline]
    fn new(vma: &'a Vma, held: ReadBy<'a>) -> Self {
        Self {
            vma,
            held,
            _order: Held::new(),
        }
    }

    /// The VMA.
    pub fn vma(&self) -> &Vma {
        self.vma
    }

    /// Calls `f` with the attributes.
    pub fn with<R>(&self, f: impl FnOnce(&Attributes) -> R) -> R {
        // SAFETY: a reference that `start_read` or `start_read_locked` vouched
        // for; a writer waits until it is dropped.
        unsafe { self.vma.with_attributes(f) }
    }

    /// Biases the VMA for reading, where locks can be ([`biased`]), without
    /// waiting for contention to show. `mmap_lock` is that of its space.
    pub fn bias(&self, mmap_lock: &MmapLock) {
        if mmap_lock.kind() == Biased {
            biased::bias(self, mmap_lock);
        }
    }
}

impl Drop for VmaRead<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.held {
            ReadBy::Count => refcount::end_read(self.vma),
            ReadBy::Sem(sem) => sem.end_read(),
            ReadBy::Visible(word) => word.leave(),
        }
    }
}

/// Locks a VMA for reading without `mmap_lock`, if it belongs to the space of
/// `mmap_lock` and is not write-locked. `vma` may be any slot of the slab; that
/// it is still the mapping that was looked for is for the caller to check.
#[inline]
pub fn start_read<'a>(vma: &'a Vma, mmap_lock: &MmapLock) -> Result<VmaRead<'a>, ReadError> {
    match mmap_lock.kind() {
        Refcount => refcount::start_read(vma, mmap_lock),
        Rwsem => baseline::start_read(vma, mmap_lock),
        Biased => biased::start_read(vma, mmap_lock),
    }
}

/// Locks a VMA for reading under `mmap_lock` for read, which keeps writers out:
/// the only obstacles are the limit and a fork of the process. The VMA is attached, as
/// all in the tree are.
pub fn start_read_locked<'a>(
    vma: &'a Vma,
    mmap: &MmapReadGuard<'_>,
) -> Result<VmaRead<'a>, ReadError> {
    vma.assert_space(mmap);
    let mmap_lock = mmap.mmap_lock();
    let read = match mmap_lock.kind() {
        Refcount | Biased => refcount::start_read_locked(vma, mmap_lock),
        Rwsem => baseline::start_read_locked(vma, mmap_lock),
    };
    if let Err(error) = read {
        let expected = matches!(error, ReadError::Limit | ReadError::Frozen);
        assert!(expected, "a VMA under mmap_lock is {error:?}");
    }
    read
}

impl Vma {
    /// Makes the VMA lockable: faults may read it as soon as `mmap` is let go.
    /// It must have been set up with `init` under the same guard.
    pub fn attach(&self, mmap: &MmapWriteGuard<'_>) {
        self.assert_write_locked(mmap);
        match mmap.mmap_lock().kind() {
            Refcount | Biased => refcount::attach(self),
            Rwsem => baseline::attach(self),
        }
    }

    /// Makes the VMA unlockable, for good, and waits for its readers. It must
    /// be write-locked under `mmap`. Then the slot can be cleared and freed.
    pub fn detach(&self, mmap: &MmapWriteGuard<'_>) {
        self.assert_write_locked(mmap);
        match mmap.mmap_lock().kind() {
            Refcount | Biased => refcount::detach(self, mmap.mmap_lock()),
            Rwsem => baseline::detach(self, mmap.mmap_lock()),
        }
    }

    /// Write-locks the VMA until `mmap` is let go: waits for its readers and
    /// keeps new ones out. Once is enough under one guard; more do nothing.
    pub fn start_write(&self, mmap: &MmapWriteGuard<'_>) {
        self.assert_space(mmap);
        // Relaxed: only holders of `mmap_lock` for write and a thaw store it.
        match self.lock_seq.load(Relaxed) {
            seq if seq == mmap.seq() => return,
            FROZEN => mmap.mmap_lock().wait_for_thaw(self),
            _ => {}
        }
        self.start_write_as(mmap, mmap.seq());
    }

    /// The same, of a VMA that is not write-locked, until its `lock_seq` is not `seq`
    /// any more.
    pub(super) fn start_write_as(&self, mmap: &MmapWriteGuard<'_>, seq: u64) {
        match mmap.mmap_lock().kind() {
            Refcount => refcount::start_write(self, mmap, seq),
            Rwsem => baseline::start_write(self, mmap, seq),
            Biased => biased::start_write(self, mmap, seq),
        }
    }

    /// The last step of `init`: the lock that the kind needs besides the VMA.
    pub(super) fn init_lock(&self, mmap: &MmapWriteGuard<'_>) -> Result<(), NoVmaLock> {
        match mmap.mmap_lock().kind() {
            Refcount | Biased => Ok(()),
            Rwsem => baseline::init(self, mmap.mmap_lock()),
        }
    }

    /// Gives it up again, for `clear`.
    pub(super) fn clear_lock(&self, mmap: &MmapWriteGuard<'_>) {
        match mmap.mmap_lock().kind() {
            Refcount => {}
            Rwsem => baseline::clear(self, mmap.mmap_lock()),
            Biased => biased::clear(self),
        }
    }

    /// One of the two says so: the other never attaches the VMA.
    fn is_attached(&self) -> bool {
        self.refcount() != 0 || baseline::is_attached(self)
    }

    /// Panics unless the VMA is attached. For a holder of `mmap_lock` or of a
    /// reference; to others the answer is old at once.
    pub fn assert_attached(&self) {
        assert!(self.is_attached(), "VMA {} is detached", self.index());
    }

    /// Panics unless the VMA is detached. For the owner of the slot.
    pub fn assert_detached(&self) {
        let (index, count) = (self.index(), self.refcount());
        assert!(!self.is_attached(), "VMA {index} is attached: {count:#x}");
    }

    /// Panics unless the VMA is write-locked under `mmap`.
    pub fn assert_write_locked(&self, mmap: &MmapWriteGuard<'_>) {
        self.assert_space(mmap);
        let seq = self.lock_seq.load(Relaxed); // As in `start_write`.
        assert!(
            seq == mmap.seq(),
            "VMA {} is not write-locked",
            self.index()
        );
    }

    /// The count as it is now, for assertions and for printing; 0 where the
    /// lock is a semaphore.
    pub fn refcount(&self) -> u32 {
        self.refcnt.0.load(Relaxed)
    }

    /// Readers of an attached VMA as of now, for assertions and for printing.
    /// Readers by its bias are not among them:
    /// [`MmapLock::visible_readers`] has them.
    pub fn readers(&self) -> u32 {
        match self.refcount() & !WRITER {
            0 => baseline::readers(self),
            count => count - 1,
        }
    }
}
