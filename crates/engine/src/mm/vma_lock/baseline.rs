//! [`Rwsem`](crate::policy::VmaLockKind::Rwsem): a reader-writer semaphore in an
//! allocation of its own and a flag in the VMA, as in Linux before document 004.
//! The baseline of [`refcount`](super::refcount): the same answers, on two
//! objects.
//!
//! Each VMA of such a space names a [`VmaLock`] from `init` to `clear`. **Readers**
//! enter its semaphore if that needs no waiting, and look at the flag and at the
//! sequence then. **Writers** hold `mmap_lock` for write; they go through the
//! semaphore alone to note the sequence or to set the flag, and leave it at once.
//!
//! In Linux both objects stay the same until all readers that may have found them
//! have gone (RCU). Ours are type-stable: the VMA may be another by the time
//! that a reader is in the semaphore, and the semaphore another VMA's. So with
//! it in hand a reader also asks whether it is this VMA's at all:
//!
//! ```text
//!   writer, under mmap_lock                     reader
//!   init    enter sem alone       (Acquire)     r1  sem = vm_lock       (Acquire)
//!             vm_lock = sem       (Release)     r2  enter sem           (Acquire)
//!           leave                               r3  detached?           (Acquire)
//!   attach  detached = no         (Release)     r4  vm_lock == sem?
//!   write   enter sem alone       (Acquire)     r5  space the same?
//!             lock_seq = seq                    r6  lock_seq == seq?    (Acquire seq)
//!           leave                 (Release)         reads range, attributes
//!   detach  enter sem alone       (Acquire)     r7  leave               (Release)
//!             detached = yes
//!           leave                 (Release)
//!   clear   vm_lock = none, sem is freed
//! ```
//!
//! **Why r3 and r4 are enough.** Say that r3 has met the `attach` of the slot's
//! life *k* and r4 the `init` of its life *m*. With r3 came the `init` of *k*,
//! so *m* is *k* or later. Going alone through the semaphore, `init` of *m* waits
//! for readers inside, and the semaphore of r4 comes after: so the reader entered after
//! it, and knows that all lives before *m* are detached: *k* is *m* or later. They
//! are the same life, the semaphore is its own, and the reader entered before
//! `detach` did, for else it had met the flag. Now `detach` waits for it, so
//! space, range and attributes stay as they are. For r6 see `refcount`: r2 comes
//! before the writer and is waited for, or after it and sees `lock_seq`.
//!
//! **The last put.** A reader that leaves may let a writer go on that detaches
//! the VMA, frees both slots and takes the whole space down before the reader
//! gets to wake it (needlessly, then). The wake-up uses nothing but an address
//! in the semaphore, whose slab outlives every space. And a reader that entered a
//! semaphore for the sake of a VMA which has it no more is one more reader to
//! its owner by then: it leaves without having waited for anything. That
//! is why a semaphore is never made anew: `init` takes it as it is.

use core::ptr;

use sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::super::mmap_lock::{MmapHeld, MmapLock, MmapWriteGuard};
use super::super::vma::Vma;
use super::{FROZEN, ReadBy, ReadError, VmaRead};
use crate::lock::raw_rwsem::{MOST_READERS, RawRwSem, RwsemWaiter, TryReadError};
use crate::lock::rwsem::wait_counted;
use crate::slab::TypeStable;

/// No [`VmaLock`] is left, or no memory for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoVmaLock;

/// The lock that a VMA names. A line of its own (Linux packs them): the second object is
/// measured against the count, not its neighbours.
#[derive(Debug)]
#[repr(align(64))]
pub struct VmaLock {
    /// One gate for writers: `mmap_lock` lets one come at a time.
    sem: RawRwSem<1>,
    /// Place in the slab. Immutable.
    index: u32,
}

impl TypeStable for VmaLock {
    fn new_slot(index: u32) -> Self {
        Self {
            sem: RawRwSem::new(),
            index,
        }
    }
}

impl VmaLock {
    /// Enters for reading unless a writer is there or it is full.
    #[inline]
    fn try_read(&self, mmap_lock: &MmapLock) -> Result<(), ReadError> {
        let most = MOST_READERS.min(mmap_lock.max_readers().into());
        self.sem.try_read(most).map_err(|not_now| match not_now {
            TryReadError::Writer => ReadError::WriteLocked,
            TryReadError::Full => ReadError::Limit,
        })
    }

    /// `vma_end_read`.
    #[inline]
    pub(super) fn end_read(&self) {
        self.sem.leave_read();
    }

    /// Does `change` alone in the semaphore, for which it waits if it must.
    fn alone(&self, mmap_lock: &MmapLock, change: impl FnOnce()) {
        let waiter = self.sem.write_or_queue();
        if waiter.is_some() {
            wait_counted(
                waiter,
                RwsemWaiter::wait,
                mmap_lock.vma_waits(),
                mmap_lock.clock(),
            );
        }
        change();
        self.sem.leave_write();
    }
}

/// The lock that the VMA names, if it names one.
#[inline]
fn vm_lock(vma: &Vma) -> Option<&VmaLock> {
    // Acquire pairs with the Release in `init`: the lock was made.
    let lock = vma.vm_lock.load(Acquire);
    // SAFETY: null, or stored by `init`: a slot of the slab of a `MmapLock`, whose
    // maker vouched that the slab outlives the VMA. A slot is never dropped.
    unsafe { lock.as_ref() }
}

/// [`start_read`](super::start_read).
#[inline]
pub(super) fn start_read<'a>(vma: &'a Vma, mmap_lock: &MmapLock) -> Result<VmaRead<'a>, ReadError> {
    // Relaxed: a first look that saves a write to the semaphore. A wrong answer
    // "locked" costs a detour, a wrong "unlocked" is corrected below.
    if vma.lock_seq.load(Relaxed) >= mmap_lock.seq_hint() {
        return Err(ReadError::WriteLocked);
    }
    let sem = vm_lock(vma).ok_or(ReadError::Detached)?;
    sem.try_read(mmap_lock)?;
    let held = ReadBy::Sem(sem);
    let read = VmaRead::new(vma, held);
    // Acquire pairs with the Release in `attach`: `vm_lock`, space, range and
    // attributes of the VMA that the slot is now.
    if vma.detached.load(Acquire) {
        return Err(ReadError::Detached);
    }
    // Relaxed: the Acquire above brought it; see the module's text.
    if !ptr::eq(vma.vm_lock.load(Relaxed), sem) {
        return Err(ReadError::Detached);
    }
    if vma.space() != mmap_lock.space() {
        return Err(ReadError::Reused);
    }
    // Relaxed: the Acquire in `try_read` brought the last writer's store with
    // it. `seq` is an Acquire of its own, see there.
    if vma.lock_seq.load(Relaxed) >= mmap_lock.seq() {
        return Err(ReadError::WriteLocked);
    }
    Ok(read)
}

/// [`start_read_locked`](super::start_read_locked).
pub(super) fn start_read_locked<'a>(
    vma: &'a Vma,
    mmap_lock: &MmapLock,
) -> Result<VmaRead<'a>, ReadError> {
    if !is_attached(vma) {
        return Err(ReadError::Detached);
    }
    let sem = vm_lock(vma).expect("an attached VMA has a lock");
    sem.try_read(mmap_lock)?;
    let held = ReadBy::Sem(sem);
    let read = VmaRead::new(vma, held);
    // As above. Any other sequence is that of a write lock that has ended.
    if vma.lock_seq.load(Relaxed) == FROZEN {
        return Err(ReadError::Frozen);
    }
    Ok(read)
}

/// Gives the VMA a lock. It is the last step of [`Vma::init`].
pub(super) fn init(vma: &Vma, mmap_lock: &MmapLock) -> Result<(), NoVmaLock> {
    let slab = mmap_lock.vma_locks();
    let lock = slab.get(slab.alloc().ok_or(NoVmaLock)?);
    // Alone: a thread that is still in there for another VMA, or for this slot
    // in an earlier life, has not seen that it is this one's now.
    lock.alone(mmap_lock, || {
        // Release pairs with the Acquire in `vm_lock`.
        vma.vm_lock.store(ptr::from_ref(lock).cast_mut(), Release);
    });
    Ok(())
}

/// [`Vma::attach`].
pub(super) fn attach(vma: &Vma) {
    assert!(!is_attached(vma), "attach of an attached VMA");
    // Release pairs with the Acquire in `start_read`: the VMA is complete before
    // anybody trusts in it.
    vma.detached.store(false, Release);
}

/// [`Vma::start_write`], of a VMA that is not write-locked yet.
pub(super) fn start_write(vma: &Vma, mmap: &MmapWriteGuard<'_>, seq: u64) {
    assert!(is_attached(vma), "write lock of a detached VMA");
    let lock = vm_lock(vma).expect("an attached VMA has a lock");
    let mmap_lock = mmap.mmap_lock();
    wait_counted(
        lock.sem.write_or_queue(),
        RwsemWaiter::wait,
        mmap_lock.vma_waits(),
        mmap_lock.clock(),
    );
    // Relaxed: published by the next line. A reader's first look may see it
    // sooner or later.
    vma.lock_seq.store(seq, Relaxed);
    lock.sem.leave_write();
}

/// [`Vma::detach`]. Readers here are few and short, as with the count.
pub(super) fn detach(vma: &Vma, mmap_lock: &MmapLock) {
    assert!(is_attached(vma), "detach of a detached VMA");
    let lock = vm_lock(vma).expect("an attached VMA has a lock");
    // Relaxed: published by the semaphore. A reader that entered before has left
    // again before it is stored; one that enters after it sees it.
    lock.alone(mmap_lock, || vma.detached.store(true, Relaxed));
}

/// Takes the lock from a detached VMA. It is a step of [`Vma::clear`].
pub(super) fn clear(vma: &Vma, mmap_lock: &MmapLock) {
    // None if there was none to be had.
    if let Some(lock) = vm_lock(vma) {
        // Relaxed: readers that do not see it yet see that it is detached.
        vma.vm_lock.store(ptr::null_mut(), Relaxed);
        mmap_lock.vma_locks().free(lock.index);
    }
}

/// For the owner of the slot, and holders of `mmap_lock` or of the VMA's lock.
pub(super) fn is_attached(vma: &Vma) -> bool {
    // Relaxed: the caller's lock orders it.
    !vma.detached.load(Relaxed)
}

/// Readers in the VMA's semaphore as of now.
pub(super) fn readers(vma: &Vma) -> u32 {
    vm_lock(vma).map_or(0, |lock| lock.sem.readers() as u32)
}
