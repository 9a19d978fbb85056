//! One mapping.
//!
//! A VMA lives in a type-stable slab. Three cache lines, by their readers:
//!
//! ```text
//!    0  identity     atomics that a lookup reads with no lock at all, and
//!                    reads again once it holds a reference
//!   64  attributes   read under a lock of the VMA or of its space
//!  128  refcnt       the lock word, which every fault writes, unless the VMA is
//!                    biased
//! ```
//!
//! The life of a slot: `init` (claimed for a space, write-locked, detached),
//! `attach` (faults may lock it), `start_write` and changes, `detach` (the last
//! reader has gone), `clear` (claimed by nobody; back to the slab). All of them
//! take the space's `mmap_lock` for write, or all but `start_write` share it
//! (`shared`); the lock itself is in [`vma_lock`](super::vma_lock). Of its kinds one uses `refcnt`, one `detached`
//! and `vm_lock`, one `refcnt`, `failed` and `bias`; fields that a kind does not use
//! stay as in a slot that was never used.

use core::fmt;
use core::ops::Range;

use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use sync::cell::UnsafeCell;
use sync::wait::WaitWord;

use super::backing::Backing;
use super::mmap_lock::{MmapHeld, MmapSharedGuard, MmapWriteGuard};
use super::tree::LockedLeaf;
use super::vma_lock::{NoVmaLock, VmaLock, WRITER};
use crate::page::{Advice, Protection};
use crate::slab::TypeStable;

/// Everything of a VMA except its range: two neighbours merge if these agree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// The memory behind the VMA.
    pub backing: Backing,
    /// Page of the backing that the VMA's first page shows.
    pub pgoff: u64,
    /// Protection.
    pub protection: Protection,
    /// Advice.
    pub advice: Advice,
}

/// Bytes of address space, page-aligned.
pub type AddressRange = Range<usize>;

/// The number of no space: a slot that nobody has claimed.
const NO_SPACE: u64 = 0;

/// One mapping of an address space. Three cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Vma {
    /// The space that has claimed the slot, or [`NO_SPACE`]. Changed by `init`
    /// and `clear`: while the VMA is attached it stays.
    space: AtomicU64,
    /// First byte. Protected by the VMA's write lock; a lookup may read it with
    /// no lock, and then has to look again.
    start: AtomicUsize,
    /// First byte past the end. As `start`.
    end: AtomicUsize,
    /// The space's sequence when the VMA was last write-locked; greater than any while
    /// it is frozen; 0 after that, or before. Written under `mmap_lock` for write, with
    /// no reader there, and by a thaw.
    pub(super) lock_seq: AtomicU64,
    /// [`rwsem`](super::vma_lock::baseline) alone: the VMA's lock, from `init` to
    /// `clear`. Written under `mmap_lock` for write.
    pub(super) vm_lock: AtomicPtr<VmaLock>,
    /// Place in the slab. Immutable.
    index: u32,
    /// [`rwsem`](super::vma_lock::baseline) alone: false from `attach` to `detach`.
    /// Written under `mmap_lock` for write.
    pub(super) detached: AtomicBool,
    /// [`biased`](super::vma_lock::biased) alone: the VMA is read without the
    /// count. Set by a reader that is in the count; cleared under `mmap_lock` for
    /// write, with no such reader there.
    pub(super) bias: AtomicBool,

    /// Protected by the VMA's lock: read under a reference or under
    /// `mmap_lock`, written under the write lock.
    attributes: Attributes64,

    /// The lock word; see [`refcount`](super::vma_lock::refcount), which alone
    /// changes it. [`biased`](super::vma_lock::biased) counts in it too.
    /// W is [`WRITER`](super::vma_lock::WRITER). Its legal values:
    ///
    /// | value | the VMA is |
    /// |---|---|
    /// | 0 | detached |
    /// | 1 | attached, nobody reads it |
    /// | 1 + n | attached, n readers, at most `max_readers` of its space |
    /// | W + 1 + n | attached, a writer waits until n is 0; no reader may come |
    /// | W + n | being detached, until n is 0; no reader may come |
    pub(super) refcnt: RefcntLine,
}

/// A line of its own for the attributes.
#[derive(Debug)]
#[repr(align(64))]
struct Attributes64(UnsafeCell<Attributes>);

/// A line of its own for the lock word.
#[repr(align(64))]
pub(super) struct RefcntLine(pub(super) WaitWord, AtomicU32);

impl fmt::Debug for RefcntLine {
    /// In words, as in the table at the field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.load(Relaxed);
        match (count & !WRITER, count & WRITER != 0) {
            (0, false) => f.write_str("detached"),
            (own, false) => write!(f, "attached, {} readers", own - 1),
            (0, true) => f.write_str("being detached, no reader left"),
            // The word does not say which: the holder of `mmap_lock` knows.
            (own, true) => write!(
                f,
                "a writer waits for {} readers, or its detaching for {own}",
                own - 1
            ),
        }
    }
}

impl RefcntLine {
    /// [`biased`](super::vma_lock::biased) alone: failed exchanges of the lock
    /// word since the VMA was last without bias.
    pub(super) fn failed(&self) -> &AtomicU32 {
        &self.1
    }
}

/// True where atomics have their real size (a model checker's are larger).
const REAL: bool = size_of::<AtomicU32>() == 4;
const _: () = assert!(!REAL || size_of::<Vma>() == 192);
const _: () = assert!(!REAL || core::mem::offset_of!(Vma, space) == 0);
const _: () = assert!(!REAL || core::mem::offset_of!(Vma, detached) < 64);
const _: () = assert!(!REAL || core::mem::offset_of!(Vma, bias) < 64);
const _: () = assert!(!REAL || core::mem::offset_of!(Vma, attributes) == 64);
const _: () = assert!(!REAL || core::mem::offset_of!(Vma, refcnt) == 128);
const _: () = assert!(!REAL || size_of::<WaitWord>() == 4);

// SAFETY: attributes move between threads only together with the slot.
unsafe impl Send for Vma {}
// SAFETY: everything is atomic but the attributes. They are read by holders of
// a reference (`VmaRead`) or of `mmap_lock`, and written by a holder of the
// write lock or the claimer of a detached slot, which exclude one another; see
// the functions below.
unsafe impl Sync for Vma {}

impl TypeStable for Vma {
    fn new_slot(index: u32) -> Self {
        Self {
            space: AtomicU64::new(NO_SPACE),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            lock_seq: AtomicU64::new(0),
            vm_lock: AtomicPtr::new(core::ptr::null_mut()),
            index,
            detached: AtomicBool::new(true),
            bias: AtomicBool::new(false),
            attributes: Attributes64(UnsafeCell::new(Attributes::default())),
            refcnt: RefcntLine(WaitWord::new(0), AtomicU32::new(0)),
        }
    }
}

impl Vma {
    /// Its place in the slab.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The space that claims the slot; 0 if none does. Stable while the VMA is
    /// attached and the caller holds a reference or that space's `mmap_lock`.
    pub fn space(&self) -> u64 {
        // Relaxed: the reference or lock that makes it stable also orders it. For a reader that is
        // the Acquire in `vma_lock::start_read`.
        self.space.load(Relaxed)
    }

    /// First byte. Stable under a read or write lock of the VMA, or its
    /// space's `mmap_lock`; to anybody else a guess.
    pub fn start(&self) -> usize {
        self.start.load(Relaxed) // As in `space`.
    }

    /// First byte past the end. As `start`.
    pub fn end(&self) -> usize {
        self.end.load(Relaxed) // As in `space`.
    }

    /// The range; as `start`.
    pub fn range(&self) -> AddressRange {
        self.start()..self.end()
    }

    /// Claims a slot that the slab handed out, for the space of `mmap`. The VMA
    /// is detached, and counts as write-locked until `mmap` is let go.
    ///
    /// Lookups that found the slot's last VMA may read it all the time: none of
    /// them can take a reference before `attach`. Fails, and claims nothing,
    /// where the kind of lock needs memory and there is none.
    pub fn init(
        &self,
        mmap: &MmapWriteGuard<'_>,
        range: AddressRange,
        attributes: Attributes,
    ) -> Result<(), NoVmaLock> {
        self.init_at(mmap.mmap_lock().space(), mmap.seq(), range, attributes);
        self.init_lock(mmap).inspect_err(|_| {
            self.clear(mmap);
        })
    }

    /// The same by a verb that shares `mmap_lock`: the VMA is not write-locked, and can be read once it is attached.
    pub(super) fn init_shared(
        &self,
        mmap: &MmapSharedGuard<'_>,
        range: AddressRange,
        attributes: Attributes,
    ) {
        // 0 is no sequence of a space.
        self.init_at(mmap.mmap_lock().space(), 0, range, attributes);
    }

    fn init_at(&self, space: u64, seq: u64, range: AddressRange, attributes: Attributes) {
        assert!(range.start < range.end, "an empty VMA: {range:x?}");
        // Acquire pairs with the Release in `clear`: the last claimer is
        // through with the attributes.
        let claimed = self
            .space
            .compare_exchange(NO_SPACE, space, Acquire, Relaxed);
        assert!(claimed.is_ok(), "slot {} is another VMA's", self.index);
        self.assert_detached();
        // Relaxed, all of it: the Release in `attach` publishes it.
        self.lock_seq.store(seq, Relaxed);
        self.start.store(range.start, Relaxed);
        self.end.store(range.end, Relaxed);
        let _none = self.replace_attributes(attributes);
    }

    /// Gives up a detached VMA's claim and attributes; the slot can go back
    /// to the slab. The attributes are returned so that the caller may drop
    /// them where it holds no lock.
    pub fn clear(&self, mmap: &MmapWriteGuard<'_>) -> Attributes {
        self.assert_space(mmap);
        self.clear_lock(mmap);
        self.clear_at()
    }

    /// The same by a verb that shares `mmap_lock`.
    pub(super) fn clear_shared(&self, mmap: &MmapSharedGuard<'_>) -> Attributes {
        assert!(self.space() == mmap.mmap_lock().space(), "another space's");
        self.clear_at()
    }

    /// True if it shows all of its backing, and no other VMA does. Of an entry of a leaf that this thread has taken.
    pub(super) fn is_alone(&self, leaf: &LockedLeaf<'_>, mmap: &MmapSharedGuard<'_>) -> bool {
        let range = self.range();
        let entry = leaf.floor(range.start);
        assert!(
            self.space() == mmap.mmap_lock().space()
                && entry.is_some_and(|entry| entry.start == range.start),
            "no entry of the leaf"
        );
        // SAFETY: it is attached, and its attributes stay: to detach it, a verb takes this leaf first, and to change it, a verb holds
        // `mmap_lock` for write, which is shared here.
        unsafe { self.with_attributes(|attributes| attributes.is_alone(&range)) }
    }

    fn clear_at(&self) -> Attributes {
        self.assert_detached();
        let attributes = self.replace_attributes(Attributes::default());
        // Release pairs with the Acquire in `init`.
        self.space.store(NO_SPACE, Release);
        attributes
    }

    /// Changes the range of a write-locked VMA.
    pub fn set_range(&self, mmap: &MmapWriteGuard<'_>, range: AddressRange) {
        assert!(range.start < range.end, "an empty VMA: {range:x?}");
        self.assert_write_locked(mmap);
        // Relaxed: the Release in MmapWriteGuard's drop publishes it.
        self.start.store(range.start, Relaxed);
        self.end.store(range.end, Relaxed);
    }

    /// Changes the attributes of a write-locked VMA; returns those it had.
    pub fn set_attributes(&self, mmap: &MmapWriteGuard<'_>, attributes: Attributes) -> Attributes {
        self.assert_write_locked(mmap);
        self.replace_attributes(attributes)
    }

    /// The attributes, to a holder of the space's `mmap_lock`.
    pub fn attributes(&self, mmap: &impl MmapHeld) -> Attributes {
        self.assert_space(mmap);
        // SAFETY: writing needs `mmap_lock` of this space for write: somebody
        // else has not got it, and this thread is here.
        self.attributes
            .0
            .with(|attributes| unsafe { (*attributes).clone() })
    }

    /// Calls `f` with the attributes.
    ///
    /// # Safety
    /// The caller holds a reference to the VMA that keeps writers out.
    pub(super) unsafe fn with_attributes<R>(&self, f: impl FnOnce(&Attributes) -> R) -> R {
        // SAFETY: no writer, says the caller.
        self.attributes
            .0
            .with(|attributes| f(unsafe { &*attributes }))
    }

    /// Panics if another space has claimed the VMA.
    pub(super) fn assert_space(&self, mmap: &impl MmapHeld) {
        let (space, held) = (self.space(), mmap.mmap_lock().space());
        assert!(space == held, "a VMA of space {space}, not of {held}");
    }

    /// Only for a claimer of a detached VMA or a holder of the write lock: nobody
    /// reads. Other writers are kept out by the claim, or by `mmap_lock` for write.
    fn replace_attributes(&self, attributes: Attributes) -> Attributes {
        self.attributes.0.with_mut(|place| {
            // SAFETY: nobody else accesses them, see above; no code of others
            // runs in here.
            unsafe { core::mem::replace(&mut *place, attributes) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_word_is_printed_as_a_state() {
        let vma = Vma::new_slot(0);
        for (count, state) in [
            (0, "detached"),
            (1, "attached, 0 readers"),
            (3, "attached, 2 readers"),
            (
                WRITER + 3,
                "a writer waits for 2 readers, or its detaching for 3",
            ),
            (WRITER, "being detached, no reader left"),
        ] {
            vma.refcnt.0.store(count, Relaxed);
            let text = format!("{vma:?}");
            assert!(text.contains(state), "{text}");
        }
        vma.refcnt.0.store(0, Relaxed);
    }
}
