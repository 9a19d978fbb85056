//! The per-VMA lock: one reference count that is lock, attached flag and
//! lifetime at once (document 004).
//!
//! **Readers** are faults. They add one to the count if it is not 0 (detached),
//! has no writer bit, and is below the limit; they never wait. **Writers** hold
//! `mmap_lock` for write, so there is one at a time. A writer sets the writer
//! bit, which keeps new readers out, waits until the readers there have gone,
//! notes the space's sequence in the VMA, and clears the bit again: from then on
//! the noted sequence keeps readers out, until `mmap_lock` is let go.
//!
//! A slot may be freed and used for another VMA between a reader's finding it
//! and its taking a reference. So with the reference it looks again: is this
//! still my space? And [`lock_vma`](super::lock_vma) asks: my address? While it
//! holds the reference neither can change. The answer "not write-locked" can be
//! trusted then, for the writer's last step is on the same word:
//!
//! ```text
//!   writer, under mmap_lock                    reader
//!   w1  refcnt += W, wait for the readers      r1  refcnt += 1        (Acquire)
//!   w2  lock_seq = seq                         r2  space the same?
//!   w3  refcnt -= W              (Release)     r3  lock_seq == seq?   (Acquire seq)
//!       changes range, attributes                  reads range, attributes
//!   w4  seq += 1                 (Release)     r4  refcnt -= 1        (Release)
//! ```
//!
//! r1 comes before w1, and the writer waits for r4; or after w3, and r3 sees
//! the `lock_seq` of w2 and a `seq` no older than the writer's own. If those
//! are equal the reader leaves; if not it has seen w4, and with it everything
//! that was changed. It never has `lock_seq` of one space and `seq` of another,
//! for r2 comes before.
//!
//! **The last put.** A reader's `refcnt -= 1` may let a writer go on that
//! detaches the VMA, frees the slot and takes the whole space down before the
//! reader gets to wake it (needlessly, then). The wake-up uses nothing but the
//! address of the count: slots are type-stable and live as long as the slab,
//! which outlives every space. Whoever sleeps on the slot in its next life looks
//! at the count again and goes on sleeping.

use sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::mmap_lock::{MmapHeld, MmapLock, MmapReadGuard, MmapWriteGuard};
use super::vma::{Attributes, Vma};

/// A writer waits for the readers to go, and no reader may come.
pub const WRITER: u32 = 0x4000_0000;

/// The most readers a VMA can have: with the attached VMA's own reference the
/// count stays below [`WRITER`].
pub const MAX_READERS: u32 = WRITER - 2;

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
}

impl VmaRead<'_> {
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
}

impl Drop for VmaRead<'_> {
    #[inline]
    fn drop(&mut self) {
        end_read(self.vma);
    }
}

/// Locks a VMA for reading without `mmap_lock`, if it belongs to the space of
/// `mmap_lock` and is not write-locked. `vma` may be any slot of the slab; that
/// it is still the mapping that was looked for is for the caller to check.
#[inline]
pub fn start_read<'a>(vma: &'a Vma, mmap_lock: &MmapLock) -> Result<VmaRead<'a>, ReadError> {
    // Relaxed: a first look that saves a write to the count. A wrong answer
    // "locked" costs a detour, a wrong "unlocked" is corrected below.
    if vma.lock_seq.load(Relaxed) == mmap_lock.seq_hint() {
        return Err(ReadError::WriteLocked);
    }
    get_unless_zero(vma, mmap_lock.max_readers())?;
    let read = VmaRead { vma };
    if vma.space() != mmap_lock.space() {
        return Err(ReadError::Reused);
    }
    // Relaxed: the Acquire in `get_unless_zero` brought the last writer's store
    // with it. `seq` is an Acquire of its own, see there.
    if vma.lock_seq.load(Relaxed) == mmap_lock.seq() {
        return Err(ReadError::WriteLocked);
    }
    Ok(read)
}

/// Locks a VMA for reading under `mmap_lock` for read, which keeps writers out:
/// the only obstacle is the limit. The VMA is attached, as all in the tree are.
pub fn start_read_locked<'a>(
    vma: &'a Vma,
    mmap: &MmapReadGuard<'_>,
) -> Result<VmaRead<'a>, ReadError> {
    vma.assert_space(mmap);
    match get_unless_zero(vma, mmap.mmap_lock().max_readers()) {
        Ok(()) => Ok(VmaRead { vma }),
        Err(ReadError::Limit) => Err(ReadError::Limit),
        Err(error) => panic!("a VMA under mmap_lock is {error:?}"),
    }
}

/// Adds a reader, unless detached, kept out, or at the limit.
#[inline]
fn get_unless_zero(vma: &Vma, max_readers: u32) -> Result<(), ReadError> {
    let refcnt = &vma.refcnt.0;
    let mut count = refcnt.load(Relaxed); // A stale value fails below.
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
            Ok(_) => return Ok(()),
            Err(now) => count = now,
        }
    }
}

/// `vma_end_read`.
#[inline]
fn end_read(vma: &Vma) {
    let refcnt = &vma.refcnt.0;
    // Release pairs with the Acquire of the writer that waits for readers: what
    // this one read is behind it.
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

impl Vma {
    /// Makes the VMA lockable: faults may read it as soon as `mmap` is let go.
    /// It must have been set up with `init` under the same guard.
    pub fn attach(&self, mmap: &MmapWriteGuard<'_>) {
        self.assert_write_locked(mmap);
        // Release pairs with the Acquire in `get_unless_zero`: the VMA is
        // complete before anybody can have a reference to it.
        let was = self.refcnt.0.compare_exchange(0, 1, Release, Relaxed);
        assert!(was.is_ok(), "attach of an attached VMA: {was:?}");
    }

    /// Makes the VMA unlockable, for good, and waits for its readers. It must
    /// be write-locked under `mmap`. Then the slot can be cleared and freed.
    ///
    /// Readers here are few and short: the write lock has already waited for
    /// those that came before it, and later ones leave once they see it.
    pub fn detach(&self, mmap: &MmapWriteGuard<'_>) {
        self.assert_write_locked(mmap);
        let refcnt = &self.refcnt.0;
        // Acquire, on both ways, pairs with the Release in `end_read`: readers
        // who only came to see that it is locked have read `space` and
        // `lock_seq` before the slot gets others. (Without it they could only
        // see the future, by load buffering, which loom does not model.)
        if let Err(count) = refcnt.compare_exchange(1, 0, Acquire, Relaxed) {
            assert!(count != 0, "detach of a detached VMA");
            // No reader may come, and the VMA's own reference goes.
            let old = refcnt.fetch_add(WRITER - 1, Acquire);
            assert!(old & WRITER == 0, "detach of a VMA in use by a writer");
            self.wait_for_readers(mmap.mmap_lock(), old + WRITER - 1, WRITER);
            // Relaxed: a reader that meets 0 takes nothing from it.
            let old = refcnt.fetch_sub(WRITER, Relaxed);
            assert!(old == WRITER, "a reader came to a detached VMA: {old:#x}");
        }
    }

    /// Write-locks the VMA until `mmap` is let go: waits for its readers and
    /// keeps new ones out. Once is enough under one guard; more do nothing.
    pub fn start_write(&self, mmap: &MmapWriteGuard<'_>) {
        self.assert_space(mmap);
        // Relaxed: only holders of `mmap_lock` for write store it.
        if self.lock_seq.load(Relaxed) == mmap.seq() {
            return;
        }
        let refcnt = &self.refcnt.0;
        // Acquire pairs with the Release in `end_read`: the last readers are
        // through. It is this one that counts if there is nobody to wait for.
        let old = refcnt.fetch_add(WRITER, Acquire);
        assert!(old != 0, "write lock of a detached VMA");
        assert!(old & WRITER == 0, "two writers of a VMA");
        self.wait_for_readers(mmap.mmap_lock(), old + WRITER, WRITER + 1);
        // Relaxed: published by the next line. A reader's first look may see
        // it sooner or later.
        self.lock_seq.store(mmap.seq(), Relaxed);
        // Release pairs with the Acquire in `get_unless_zero`: who becomes a
        // reader from here on sees `lock_seq`, and leaves.
        let old = refcnt.fetch_sub(WRITER, Release);
        assert!(old == WRITER + 1, "a reader came past the writer: {old:#x}");
    }

    /// Waits until the count, which was `count`, is `target`.
    fn wait_for_readers(&self, mmap_lock: &MmapLock, mut count: u32, target: u32) {
        if count == target {
            mmap_lock.vma_waits().record_uncontended();
            return;
        }
        let begin = mmap_lock.clock().now_ns();
        while count != target {
            // A reader that leaves between the load and here has changed the
            // count, and the wait returns.
            self.refcnt.0.wait(count, None);
            // Acquire pairs with the Release in `end_read`, of every reader:
            // their subtractions form one release sequence.
            count = self.refcnt.0.load(Acquire);
        }
        let waited = mmap_lock.clock().now_ns() - begin;
        mmap_lock.vma_waits().record(waited);
    }

    /// Panics unless the VMA is attached. For a holder of `mmap_lock` or of a
    /// reference; to others the answer is old at once.
    pub fn assert_attached(&self) {
        assert!(self.refcount() != 0, "VMA {} is detached", self.index());
    }

    /// Panics unless the VMA is detached. For the owner of the slot.
    pub fn assert_detached(&self) {
        let count = self.refcount();
        assert!(count == 0, "VMA {} is attached: {count:#x}", self.index());
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

    /// The count as it is now, for assertions and for printing.
    pub fn refcount(&self) -> u32 {
        self.refcnt.0.load(Relaxed)
    }
}
