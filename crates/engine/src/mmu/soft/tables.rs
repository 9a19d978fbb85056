//! The radix tree: four levels of tables, and a lock for each leaf.
//!
//! ```text
//!   level 3   root     never goes
//!   level 2   ┐ made by compare-and-swap of the entry above, by the thread that needs
//!   level 1   ┘ them first; go with the last window they serve
//!   level 0   leaf     entries are pages; made likewise, goes with its last page
//! ```
//!
//! A table is a frame. Entries are atomics, and change as follows: those above
//! the leaves from nothing to a table by compare-and-swap, and back by the thread that
//! takes the table out; those of a leaf under the leaf's lock.
//!
//! Walks are allowed to:
//! - a core inside an access (`cores`), with no lock: tables that are taken
//!   out, like pages, are reused only after a shootdown;
//! - the holder of the window, down to level 1, whose tables stay while the
//!   window does. It locks the leaf and looks again whether it is still there:
//!   the lock is in the frame's note, which never goes.

use super::cores::Cores;
use super::entry::Pte;
use super::frames::Frames;
use crate::lock::{MutexGuard, order};
use crate::{PAGE_SHIFT, PAGE_SIZE};
use core::ops::Range;
use core::ptr::NonNull;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::stat::Counter;

/// Levels of tables.
pub const LEVELS: u32 = 4;
/// Entries of the product's tables.
pub const ENTRIES: usize = 512;

/// Soft page tables whose tables have `N` entries.
#[derive(Debug)]
pub struct Tables<const N: usize> {
    pub(super) frames: Frames,
    pub(super) cores: Cores,
    /// Frame of the root. Immutable.
    root: u32,
    made: Counter,
    freed: Counter,
}

/// No frame was free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFrame;

type Table<const N: usize> = [AtomicU64; N];

/// A locked leaf.
pub struct PteTable<'a, const N: usize> {
    table: &'a Table<N>,
    /// The entry above that leads here.
    above: &'a AtomicU64,
    /// Frame of the table.
    frame: u32,
    /// The lock, and how many entries are in use.
    used: MutexGuard<'a, u32, { order::SOFT_LEAF }>,
}

impl<const N: usize> Tables<N> {
    const BITS: u32 = N.ilog2();
    /// Bytes that a leaf covers.
    pub const SPAN: usize = Self::span(0);
    /// Bytes that all tables cover.
    pub const BYTES: usize = Self::span(LEVELS - 1);

    /// Tables with nothing in them. `None` where there is no memory.
    pub fn new(frames: Frames, cores: Cores) -> Option<Self> {
        // A model checker's atomics are larger, and so must its tables be smaller.
        assert!(N.is_power_of_two() && size_of::<Table<N>>() <= PAGE_SIZE);
        let mut tables = Self {
            frames,
            cores,
            root: 0,
            made: Counter::new(),
            freed: Counter::new(),
        };
        tables.root = tables.new_table().ok()?;
        Some(tables)
    }

    /// The cores that use them.
    pub fn cores(&self) -> &Cores {
        &self.cores
    }

    /// The frames that pages and tables are in.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Frames that are tables now.
    pub fn count(&self) -> u64 {
        self.made.get() - self.freed.get()
    }

    /// Bytes that a table of this level covers.
    pub(super) const fn span(level: u32) -> usize {
        1 << (PAGE_SHIFT + Self::BITS * (level + 1))
    }

    fn index(addr: usize, level: u32) -> usize {
        addr >> (PAGE_SHIFT + Self::BITS * level) & (N - 1)
    }

    /// A frame with an empty table in it.
    fn new_table(&self) -> Result<u32, NoFrame> {
        let frame = self.frames.alloc_one().ok_or(NoFrame)?;
        let first: NonNull<AtomicU64> = self.frames.address(frame).cast();
        for index in 0..N {
            // SAFETY: a table fits a frame, and the frame is ours alone.
            unsafe { first.add(index).write(AtomicU64::new(0)) };
        }
        self.made.add(1);
        Ok(frame)
    }

    /// Counts a table that was taken out of the tree.
    pub(super) fn count_freed(&self) {
        self.freed.add(1);
    }

    /// Takes out the table that `above` leads to, which nobody needs any more;
    /// it may be walked until a shootdown. Returns its frame.
    pub(super) fn take_out(&self, above: &AtomicU64) -> Option<u32> {
        // Relaxed: published by the shootdown.
        let entry = Pte::from_bits(above.swap(Pte::NONE.bits(), Relaxed));
        entry.is_present().then(|| {
            self.freed.add(1);
            entry.frame()
        })
    }

    fn table(&self, frame: u32) -> &Table<N> {
        // SAFETY: a frame that an entry of a table leads to is a table, and
        // stays one for all that may walk; see above.
        unsafe { self.frames.address(frame).cast().as_ref() }
    }

    /// The entry for `addr` in a table of `level`. Or where to go on looking,
    /// if there is no such table.
    pub(super) fn slot(&self, addr: usize, level: u32) -> Result<&AtomicU64, usize> {
        let mut at = LEVELS - 1;
        let mut table = self.table(self.root);
        loop {
            let slot = &table[Self::index(addr, at)];
            if at == level {
                return Ok(slot);
            }
            at -= 1;
            // Acquire pairs with the Release in `make`: the table was cleared.
            let entry = Pte::from_bits(slot.load(Acquire));
            if !entry.is_present() {
                let span = Self::span(at);
                return Err((addr & !(span - 1)) + span);
            }
            table = self.table(entry.frame());
        }
    }

    /// Tables between the root and the leaf of the first of these addresses that are for these addresses alone.
    pub(super) fn count_above_leaf(&self, within: &Range<usize>) -> usize {
        let start = within.start;
        let levels = (2..LEVELS).filter(|level| start + Self::span(level - 1) <= within.end);
        let slots = levels.filter_map(|level| self.slot(start, level).ok());
        slots
            .filter(|slot| Pte::from_bits(slot.load(Acquire)).is_present())
            .count()
    }

    /// The table that `slot` leads to; makes it if there is none.
    fn make(&self, slot: &AtomicU64) -> Result<u32, NoFrame> {
        // Acquire pairs with the Release below, here and on failure: its
        // maker has cleared it.
        let now = Pte::from_bits(slot.load(Acquire));
        if now.is_present() {
            return Ok(now.frame());
        }
        let frame = self.new_table()?;
        let entry = Pte::read_only(frame).bits();
        match slot.compare_exchange(0, entry, Release, Acquire) {
            Ok(_) => Ok(frame),
            Err(other) => {
                self.frames.put(frame);
                self.count_freed();
                Ok(Pte::from_bits(other).frame())
            }
        }
    }

    /// The entry at `addr`, for a core inside an access.
    #[inline]
    pub(super) fn walk(&self, addr: usize) -> Pte {
        let Ok(slot) = self.slot(addr, 0) else {
            return Pte::NONE;
        };
        // Acquire pairs with the Release in `PteTable::set`: the page was filled.
        Pte::from_bits(slot.load(Acquire))
    }

    /// Copies bytes out, if all their pages are present. For tests: it locks
    /// every leaf on its way, and the caller holds the window.
    ///
    /// # Safety
    /// `target` is writable for `bytes`.
    pub unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool {
        let mut done = 0;
        while done < bytes {
            let at = (addr + done) % PAGE_SIZE;
            let part = (PAGE_SIZE - at).min(bytes - done);
            let Ok(leaf) = self.leaf(addr + done) else {
                return false;
            };
            let entry = leaf.entry(addr + done);
            if !entry.is_present() {
                return false;
            }
            // SAFETY: the frame is the page's while the leaf is locked, and the
            // caller vouches for the target.
            unsafe {
                let target = core::slice::from_raw_parts_mut(target.add(done), part);
                self.frames.load(entry.frame(), at, target);
            }
            done += part;
        }
        true
    }

    /// Locks the leaf of `addr`, if there is one. Or says where to go on
    /// looking. The caller holds the window.
    pub(super) fn leaf(&self, addr: usize) -> Result<PteTable<'_, N>, usize> {
        let above = self.slot(addr, 1)?;
        loop {
            let now = Pte::from_bits(above.load(Acquire)); // As in `make`.
            if !now.is_present() {
                return Err((addr & !(Self::SPAN - 1)) + Self::SPAN);
            }
            if let Some(leaf) = self.lock(above, now.frame()) {
                return Ok(leaf);
            }
        }
    }

    /// Locks the leaf of `addr`; makes missing tables on the way there. The
    /// caller holds the window.
    pub(super) fn make_leaf(&self, addr: usize) -> Result<PteTable<'_, N>, NoFrame> {
        let mut table = self.root;
        for level in (2..LEVELS).rev() {
            table = self.make(&self.table(table)[Self::index(addr, level)])?;
        }
        let above = &self.table(table)[Self::index(addr, 1)];
        loop {
            let frame = self.make(above)?;
            if let Some(leaf) = self.lock(above, frame) {
                return Ok(leaf);
            }
        }
    }

    /// Locks the leaf in `frame`, unless it has been taken out meanwhile.
    #[inline]
    fn lock<'a>(&'a self, above: &'a AtomicU64, frame: u32) -> Option<PteTable<'a, N>> {
        let used = self.frames.leaf(frame).lock();
        // Relaxed: it changes under this lock only.
        let still = Pte::from_bits(above.load(Relaxed)) == Pte::read_only(frame);
        still.then(|| PteTable {
            table: self.table(frame),
            above,
            frame,
            used,
        })
    }

    /// Calls `f` with every leaf of `range`, locked, and the part of the range
    /// that it has. The caller holds the window.
    pub(super) fn for_each_leaf(
        &self,
        range: Range<usize>,
        mut f: impl FnMut(PteTable<'_, N>, Range<usize>),
    ) {
        let mut addr = range.start;
        while addr < range.end {
            match self.leaf(addr) {
                Err(next) => addr = next,
                Ok(leaf) => {
                    let end = (addr & !(Self::SPAN - 1)) + Self::SPAN;
                    f(leaf, addr..end.min(range.end));
                    addr = end;
                }
            }
        }
    }
}

impl<const N: usize> PteTable<'_, N> {
    fn slot(&self, addr: usize) -> &AtomicU64 {
        &self.table[Tables::<N>::index(addr, 0)]
    }

    /// The entry at `addr`.
    pub fn entry(&self, addr: usize) -> Pte {
        Pte::from_bits(self.slot(addr).load(Relaxed)) // Under the lock.
    }

    /// Lets `addr`, where nothing is, show a page.
    pub fn set(&mut self, addr: usize, entry: Pte) {
        debug_assert!(!self.entry(addr).is_present());
        *self.used += 1;
        self.replace(addr, entry);
    }

    /// Lets `addr` show something else than it does.
    pub fn replace(&mut self, addr: usize, entry: Pte) {
        // Release pairs with the Acquire in `walk`: the page's contents.
        self.slot(addr).store(entry.bits(), Release);
    }

    /// Takes away the page at `addr`. It may be in use until a shootdown.
    pub fn clear(&mut self, addr: usize) {
        debug_assert!(self.entry(addr).is_present());
        *self.used -= 1;
        // Relaxed: the Release in `Cores::shootdown` publishes it.
        self.slot(addr).store(Pte::NONE.bits(), Relaxed);
    }

    /// Pages that are present.
    pub fn used(&self) -> u32 {
        *self.used
    }

    /// Takes the empty leaf out of the tree. Its frame may be walked until a
    /// shootdown; then it is the caller's.
    pub fn take_out(self) -> u32 {
        assert!(*self.used == 0, "a leaf with pages in it");
        // Relaxed: published by the shootdown, and to later holders of the leaf's
        // lock by the lock.
        self.above.store(Pte::NONE.bits(), Relaxed);
        self.frame
    }
}
