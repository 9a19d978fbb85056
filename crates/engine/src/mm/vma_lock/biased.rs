//! [`Biased`](crate::policy::VmaLockKind::Biased): the count of
//! [`refcount`], and a bias for reading where many processors
//! read one VMA. After BRAVO (Dice and Kogan, "BRAVO: Biased Locking for
//! Reader-Writer Locks", USENIX ATC 2019).
//!
//! Each fault writes the count twice, and so its line travels between all
//! processors that fault in one VMA: together they are no faster than the line.
//! A VMA that is **biased** is read without the count. A reader says so in a word
//! of its own processor ([`visible`](super::visible)), and writes nothing else.
//! A VMA begins without bias, and most never have one: that of one thread is
//! locked by its count, for which nothing is lost.
//!
//! **Writers** pay for it. Besides their steps on the count, they end the bias
//! and look at all words that were ever used, and wait where a word has the VMA.
//!
//! ```text
//!   writer, under mmap_lock                     reader
//!   w1  refcnt += W, wait for the count's       r1  bias?                 a guess
//!       readers                                 r2  word: 0 -> VMA        (Acquire)
//!   w2  bias = no                               r3  bias?                 (Acquire)
//!   w3  look at each word       (RMW, AcqRel)   r4  space the same?
//!   w4  the VMA is there: wait  (Acquire)           reads range, attributes
//!   w5  lock_seq = seq                          r5  word: VMA -> 0        (RMW, Release)
//!   w6  refcnt -= W             (Release)
//!       changes range, attributes               to set the bias
//!   w7  seq += 1                (Release)       b1  refcnt += 1, asks all that a
//!                                                   reader by the count asks
//!                                               b2  bias = yes            (Release)
//!                                               b3  refcnt -= 1           (Release)
//! ```
//!
//! **The readers that the writer waits for.** r2 and w3 change one word, so one comes first.
//! - r2 before w3: w3 finds the VMA there, and w4 waits for r5; or it finds the value that
//!   r5 or a later reader left. The Acquire of w3 or w4 pairs with the Release of
//!   r5 either way.
//! - w3 before r2: the Acquire of r2 pairs with the Release of w3, so r3 does not
//!   read a bias from before w2. It reads "no" and the reader leaves, or a bias
//!   that was set again.
//!
//! w3 is a read-modify-write, and no load, so that one of them comes first:
//! there is no other fence between r2, which announces the read, and r3, which looks for the
//! bias.
//!
//! **Why the reader need not ask for `lock_seq`.** A bias is never set under a
//! writer: the thread that sets it holds a reference, for whose end w1 waits, and w1 keeps
//! out later ones. So a bias that r3 reads was set after the last
//! write lock was over, by a thread (b1) that has seen `lock_seq` differ from
//! `seq`, or has `mmap_lock`. Everything before b2 is visible to r3, for its Acquire pairs with
//! the Release of b2. And the next writer ends this bias, and waits for r5.
//!
//! **Why r4.** The slot may be a VMA of another space by now, which has a bias of
//! its own. It cannot change under the reader any more, as just said; nor can
//! the range, for which [`lock_vma`](super::super::find) asks.
//!
//! **Words that were never used** are not looked at. The first reader on a
//! processor raises the number of lines in use before r2, and the writer reads
//! that number by a read-modify-write: again one comes first, and if it is the
//! writer, r3 sees w2.
//!
//! **Detaching** needs nothing of this: the VMA is write-locked and so has no bias,
//! and gets none. A reader that still claims a word for it sees that.
//!
//! **When a VMA is biased.** Failed exchanges of the count are added up, in the
//! line that they were about. The VMA is biased once there are
//! [`FAILED_PER_LINE`] for each line that ending the bias will visit. Each of
//! them has cost a transfer of a line, one after another, and so does each line
//! visited: however the two sorts take turns, writers add no more than a ninth
//! to the earlier cost of the readers' queue. BRAVO bounds it in the same
//! proportion, by the clock.

use sync::Arc;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::super::mmap_lock::{MmapHeld, MmapLock, MmapWriteGuard};
use super::super::vma::Vma;
use super::refcount::{self, counted, get_unless_zero};
use super::visible::{Visible, VisibleReaders};
use super::{ReadBy, ReadError, VmaRead};

/// Failed exchanges of the count for each line that ending the bias will visit,
/// before there is one.
pub const FAILED_PER_LINE: u32 = 9;

/// [`start_read`](super::start_read).
#[inline]
pub(super) fn start_read<'a>(vma: &'a Vma, mmap_lock: &MmapLock) -> Result<VmaRead<'a>, ReadError> {
    // r1. Relaxed: decides only where to ask.
    if vma.bias.load(Relaxed)
        && let Some(read) = start_visible(vma, mmap_lock)
    {
        return read;
    }
    start_counted(vma, mmap_lock)
}

/// Locks a biased VMA. `None` if it is biased no more, or no word is free.
#[inline]
fn start_visible<'a>(vma: &'a Vma, mmap_lock: &MmapLock) -> Option<Result<VmaRead<'a>, ReadError>> {
    let read = VmaRead::new(vma, ReadBy::Visible(enter(vma, mmap_lock)?));
    // r3. Acquire pairs with the Release in `bias`: the VMA's fields. It
    // tells a reader that there is no writer; see the module's text.
    if !vma.bias.load(Acquire) {
        return None;
    }
    // r4.
    if vma.space() != mmap_lock.space() {
        return Some(Err(ReadError::Reused));
    }
    Some(Ok(read))
}

/// A word of the machine's table.
#[inline]
fn enter<'a>(vma: &'a Vma, mmap_lock: &MmapLock) -> Option<Visible<'a>> {
    let visible: *const VisibleReaders = Arc::as_ptr(mmap_lock.visible());
    // SAFETY: the maker of this `MmapLock` vouched that the table outlives its VMAs,
    // and that is as long as the word is held.
    unsafe { &*visible }.enter(vma)
}

/// As [`refcount::start_read`], and sets the bias if there is too much of that.
fn start_counted<'a>(vma: &'a Vma, mmap_lock: &MmapLock) -> Result<VmaRead<'a>, ReadError> {
    // Relaxed: as in `refcount`, here and below.
    if vma.lock_seq.load(Relaxed) >= mmap_lock.seq_hint() {
        return Err(ReadError::WriteLocked);
    }
    let failed = get_unless_zero(vma, mmap_lock.max_readers())?;
    let read = counted(vma);
    if vma.space() != mmap_lock.space() {
        return Err(ReadError::Reused);
    }
    if vma.lock_seq.load(Relaxed) >= mmap_lock.seq() {
        return Err(ReadError::WriteLocked);
    }
    if failed > 0 {
        count_failed(&read, failed, mmap_lock);
    }
    Ok(read)
}

/// Counts failed exchanges of a reader.
#[cold]
fn count_failed(read: &VmaRead<'_>, failed: u32, mmap_lock: &MmapLock) {
    // Relaxed: a number, and no more.
    let before = read.vma.refcnt.failed().fetch_add(failed, Relaxed);
    let lines = mmap_lock.visible().used().max(1);
    if before.saturating_add(failed) >= lines.saturating_mul(FAILED_PER_LINE) {
        bias(read, mmap_lock);
    }
}

/// Biases a VMA, for a reader by the count (b2).
pub(super) fn bias(read: &VmaRead<'_>, mmap_lock: &MmapLock) {
    let vma = read.vma;
    // Relaxed: to set it twice would do no harm.
    if !matches!(read.held, ReadBy::Count) || vma.bias.load(Relaxed) {
        return;
    }
    vma.refcnt.failed().store(0, Relaxed);
    // Release pairs with the Acquire in `start_visible`.
    vma.bias.store(true, Release);
    mmap_lock.vma_biases().add(1);
}

/// [`Vma::start_write`], of a VMA that is not write-locked yet.
pub(super) fn start_write(vma: &Vma, mmap: &MmapWriteGuard<'_>, seq: u64) {
    refcount::start_write_with(vma, mmap, seq, || {
        // Relaxed, here and below: the Acquire of w1 brought the stores of readers,
        // and w3 publishes this one.
        if vma.bias.load(Relaxed) {
            revoke(vma, mmap.mmap_lock());
        }
    });
}

/// Ends the bias and waits for the readers of the VMA by it (w2 to w4).
#[cold]
fn revoke(vma: &Vma, mmap_lock: &MmapLock) {
    let begin = mmap_lock.clock().now_ns();
    vma.bias.store(false, Relaxed);
    mmap_lock.visible().wait_for_readers(vma);
    let waited = mmap_lock.clock().now_ns() - begin;
    mmap_lock.vma_revocations().record(waited);
}

/// Clears the state that a detached VMA's next life must not find. It is a step of
/// [`Vma::clear`].
pub(super) fn clear(vma: &Vma) {
    assert!(!vma.bias.load(Relaxed), "a detached VMA is biased");
    vma.refcnt.failed().store(0, Relaxed);
}
