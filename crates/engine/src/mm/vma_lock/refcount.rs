//! [`Refcount`](crate::policy::VmaLockKind::Refcount), the default: one reference
//! count that is lock, attached flag and lifetime at once (document 004).
//!
//! **Readers** are faults. They add one to the count if it is not 0 (detached),
//! has no writer bit, and is below the limit; they never wait. **Writers** hold
//! `mmap_lock` for write, or (`verbs=shared`) share it and have the tree's leaf of
//! the VMA locked, so a VMA has one at a time. A writer sets the writer
//! bit, which keeps new readers out, waits until the readers there have gone,
//! notes the space's sequence in the VMA, and clears the bit again: from then on
//! the noted sequence keeps readers out, until `mmap_lock` is let go.
//!
//! A slot may be freed and used for another VMA between a reader's finding it
//! and its taking a reference. So with the reference it looks again: is this
//! still my space? And [`lock_vma`](super::super::find) asks: my address? While it
//! holds the reference neither can change. The answer "not write-locked" can be
//! trusted then, for the writer's last step is on the same word:
//!
//! ```text
//!   writer, under mmap_lock                    reader
//!   w1  refcnt += W, wait for the readers      r1  refcnt += 1        (Acquire)
//!   w2  lock_seq = seq                         r2  space the same?
//!   w3  refcnt -= W              (Release)     r3  lock_seq >= seq?   (Acquire seq)
//!       changes range, attributes                  reads range, attributes
//!   w4  seq += 1                 (Release)     r4  refcnt -= 1        (Release)
//! ```
//!
//! r1 comes before w1, and the writer waits for r4; or after w3, and r3 sees
//! the `lock_seq` of w2 and a `seq` no older than the writer's own. If those
//! are equal, or `lock_seq` is greater, the reader leaves; if `seq` is greater it has seen w4, and with it
//! everything that was changed. (`lock_seq` is greater than any `seq` in a VMA
//! that is frozen: see `mm::freeze`.) It never has `lock_seq` of one space and `seq` of another,
//! for r2 comes before.
//!
//! **The last put.** A reader's `refcnt -= 1` may let a writer go on that
//! detaches the VMA, frees the slot and takes the whole space down before the
//! reader gets to wake it (needlessly, then). The wake-up uses nothing but the
//! address of the count: slots are type-stable and live as long as the slab,
//! which outlives every space. A thread that sleeps on the slot in its next life looks
//! at the count again and goes on sleeping.

use sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::super::mmap_lock::{MmapHeld, MmapLock, MmapWriteGuard};
use super::super::vma::Vma;
use super::{FROZEN, ReadBy, ReadError, VmaRead};

/// A writer waits for the readers to go, and no reader may come.
pub const WRITER: u32 = 0x4000_0000;

/// The most readers a VMA can have: with the attached VMA's own reference the
/// count stays below [`WRITER`].
pub const MAX_READERS: u32 = WRITER - 2;

/// [`start_read`](super::start_read).
#[inline]
pub(super) fn start_read<'a>(vma: &'a Vma, mmap_lock: &MmapLock) -> Result<VmaRead<'a>, ReadError> {
    // Relaxed: a first look that saves a write to the count. A wrong answer
    // "locked" costs a detour, a wrong "unlocked" is corrected below.
    if vma.lock_seq.load(Relaxed) >= mmap_lock.seq_hint() {
        return Err(ReadError::WriteLocked);
    }
    get_unless_zero(vma, mmap_lock.max_readers())?;
    let read = counted(vma);
    if vma.space() != mmap_lock.space() {
        return Err(ReadError::Reused);
    }
    // Relaxed: the Acquire in `get_unless_zero` brought the last writer's store
    // with it. `seq` is an Acquire of its own, see there.
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
    get_unless_zero(vma, mmap_lock.max_readers())?;
    let read = counted(vma);
    // As above. Any other sequence is that of a write lock that has ended.
    if vma.lock_seq.load(Relaxed) == FROZEN {
        return Err(ReadError::Frozen);
    }
    Ok(read)
}

/// A reader that has been added to the count.
#[inline]
pub(super) fn counted(vma: &Vma) -> VmaRead<'_> {
    let held = ReadBy::Count;
    VmaRead::new(vma, held)
}

/// Adds a reader, unless detached, kept out, or at the limit. Returns how many
/// times others changed the count meanwhile.
#[inline]
pub(super) fn get_unless_zero(vma: &Vma, max_readers: u32) -> Result<u32, ReadError> {
    let refcnt = &vma.refcnt.0;
    let mut count = refcnt.load(Relaxed); // A stale value fails below.
    let mut failed = 0;
    loop {
        if count == 0 {
            return Err(ReadError::Detached);
        }
        if count & WRITER != 0 {
            return Err(ReadError::WriteLocked);
        }
        // One of them is the attached VMA's own.
        if count > max_readers {
            return Err(ReadError::Limit);
        }
        // Acquire pairs with the Release in `attach` (space, range, attributes
        // of the VMA that the slot is now) and with that at the end of
        // `start_write` (`lock_seq`). Other readers' changes in between are
        // read-modify-writes and hand it on.
        match refcnt.compare_exchange_weak(count, count + 1, Acquire, Relaxed) {
            Ok(_) => return Ok(failed),
            Err(now) => count = now,
        }
        failed += 1;
    }
}

/// `vma_end_read`.
#[inline]
pub(super) fn end_read(vma: &Vma) {
    let refcnt = &vma.refcnt.0;
    // Release pairs with the Acquire of the writer that waits for readers: this
    // one's reads come before it.
    let old = refcnt.fetch_sub(1, Release);
    let others = (old & !WRITER).wrapping_sub(1);
    assert!(
        others < WRITER && old != 1,
        "vma_end_read of a VMA that nobody reads: {old:#x}"
    );
    // From here on the slot may be anything, and the space gone; see above.
    // One other may be the VMA's own, or a last reader of one that is being
    // detached: then the writer is woken once too often.
    if old & WRITER != 0 && others <= 1 {
        refcnt.wake(1);
    }
}

/// [`Vma::attach`].
pub(crate) fn attach(vma: &Vma) {
    // Release pairs with the Acquire in `get_unless_zero`: the VMA is
    // complete before anybody can have a reference to it.
    let was = vma.refcnt.0.compare_exchange(0, 1, Release, Relaxed);
    assert!(was.is_ok(), "attach of an attached VMA: {was:?}");
}

/// [`Vma::detach`]. Readers here are few and short: the write lock has already
/// waited for those that came before it, and later ones leave once they see it.
pub(super) fn detach(vma: &Vma, mmap_lock: &MmapLock) {
    let count = keep_readers_out(vma);
    if count != 0 {
        detach_when_read(vma, mmap_lock, count);
    }
}

/// The first half of it: no reader may come, and the VMA's own reference goes. Returns the count: 0 if it is
/// detached.
pub(crate) fn keep_readers_out(vma: &Vma) -> u32 {
    let refcnt = &vma.refcnt.0;
    // Acquire, on both ways, pairs with the Release in `end_read`: readers
    // that only came to see that it is locked have read `space` and
    // `lock_seq` before the slot gets others. (Without it they could only
    // see the future, by load buffering, which loom does not model.)
    let Err(count) = refcnt.compare_exchange(1, 0, Acquire, Relaxed) else {
        return 0;
    };
    assert!(count != 0, "detach of a detached VMA");
    let old = refcnt.fetch_add(WRITER - 1, Acquire);
    assert!(old & WRITER == 0, "detach of a VMA in use by a writer");
    old + WRITER - 1
}

/// The second half: waits for the readers. `count` is what the first returned.
pub(crate) fn detach_when_read(vma: &Vma, mmap_lock: &MmapLock, count: u32) {
    if count == 0 {
        mmap_lock.vma_waits().record_uncontended();
        return;
    }
    wait_for_readers(vma, mmap_lock, count, WRITER);
    // Relaxed: a reader that meets 0 takes nothing from it.
    let old = vma.refcnt.0.fetch_sub(WRITER, Relaxed);
    assert!(old == WRITER, "a reader came to a detached VMA: {old:#x}");
}

/// [`Vma::start_write`], of a VMA that is not write-locked yet.
pub(super) fn start_write(vma: &Vma, mmap: &MmapWriteGuard<'_>, seq: u64) {
    start_write_with(vma, mmap, seq, || {});
}

/// The same, and `keep_out` does the rest of the work once there is, and can be, no
/// reader by the count.
#[inline]
pub(super) fn start_write_with(
    vma: &Vma,
    mmap: &MmapWriteGuard<'_>,
    seq: u64,
    keep_out: impl FnOnce(),
) {
    let refcnt = &vma.refcnt.0;
    // Acquire pairs with the Release in `end_read`: the last readers are
    // through. It is this one that counts if there is nobody to wait for.
    let old = refcnt.fetch_add(WRITER, Acquire);
    assert!(old != 0, "write lock of a detached VMA");
    assert!(old & WRITER == 0, "two writers of a VMA");
    wait_for_readers(vma, mmap.mmap_lock(), old + WRITER, WRITER + 1);
    keep_out();
    // Relaxed: published by the next line. A reader's first look may see
    // it sooner or later.
    vma.lock_seq.store(seq, Relaxed);
    // Release pairs with the Acquire in `get_unless_zero`: a new
    // reader from here on sees `lock_seq`, and leaves.
    let old = refcnt.fetch_sub(WRITER, Release);
    assert!(old == WRITER + 1, "a reader came past the writer: {old:#x}");
}

/// Waits until the count, which was `count`, is `target`.
fn wait_for_readers(vma: &Vma, mmap_lock: &MmapLock, mut count: u32, target: u32) {
    if count == target {
        mmap_lock.vma_waits().record_uncontended();
        return;
    }
    let begin = mmap_lock.clock().now_ns();
    while count != target {
        // A reader that leaves between the load and here has changed the
        // count, and the wait returns.
        vma.refcnt.0.wait(count, None);
        // Acquire pairs with the Release in `end_read`, of every reader:
        // their subtractions form one release sequence.
        count = vma.refcnt.0.load(Acquire);
    }
    let waited = mmap_lock.clock().now_ns() - begin;
    mmap_lock.vma_waits().record(waited);
}
