//! Page tables in memory, for machines where userfaultfd is closed, for tests
//! and for models.
//!
//! ```text
//!   space ── VMA ──► window + offset        engine: mm, fault
//!                        │
//!                        ▼
//!   SoftMmu ── windows   which soft addresses are taken        windows.rs
//!      │    ── tables    address → entry, a lock a leaf        tables.rs, entry.rs
//!      │    │    map, protect, zap, fork                       map.rs, protect.rs, zap.rs, fork.rs
//!      │    ── frames    where pages and tables are            frames.rs, chain.rs
//!      │    ── cores     cores inside an access; shootdown     cores.rs
//!      ▼
//!   Core    ── tlb       (space, page) → frame                 tlb.rs, view.rs
//! ```
//!
//! Tables belong to windows, not to spaces: a VMA says which window it shows
//! and from which page on. So all mappings of a file, in any number of spaces,
//! show the same pages, and to move a mapping touches no table. Soft addresses
//! are numbers, nothing is mapped there; bytes are reached through a [`Core`]
//! by `fault::read_at` and `fault::write_at`.
//!
//! **The need for a shootdown.** Zapping and forking make their own. The
//! verbs that take pages or rights from a space (`mprotect`, `munmap`, `mremap`)
//! call [`Mmu::flush_tlbs`] before they let `mmap_lock` go: accesses that begin
//! later see the change.
//!
//! Lock order: the list of windows of a part, leaves (parent before child), shards of
//! frames. None is held while anything else is waited for, except that a leaf
//! may be over a shootdown, which waits for copies only.

use super::{Access, Mmu, MmuError, Moved, PartialMove, Place, Reservation, TABLE_SPAN, Zeroed};
use crate::PAGE_SIZE;
use crate::lock::Mutex;
use crate::page::Protection;
use core::ops::Range;

pub mod chain;
pub mod cores;
pub mod entry;
mod fork;
pub mod frames;
mod huge;
mod map;
mod protect;
pub mod tables;
pub mod tlb;
mod view;
mod windows;
mod zap;

use cores::Cores;
use frames::{Frames, SHARDS};
use tables::{ENTRIES, NoFrame, Tables};
pub use view::Core;
pub(crate) use view::Direction;
use windows::Parts;
pub(crate) use windows::{ARENA_SHIFT, ARENAS, FIRST_ARENA};

/// Memory of [`SoftMmu::new`], as address space.
const DEFAULT_MEMORY: usize = 8 << 30;
/// The most cores at a time.
const MOST_CORES: usize = 1024;

const _: () = assert!(Tables::<ENTRIES>::SPAN == TABLE_SPAN);

/// Soft page tables, and the memory behind them.
#[derive(Debug)]
pub struct SoftMmu {
    tables: Tables<ENTRIES>,
    /// A part's lock is held while a window of it is reserved or released.
    windows: Parts,
    /// Frames for huge pages that no pool has, from here on.
    next_huge: Mutex<u32>,
    /// A test's setting of moves into windows; `None`: there are none.
    moves: Mutex<Option<SoftMoves>>,
}

impl Default for SoftMmu {
    fn default() -> Self {
        Self::new()
    }
}

impl SoftMmu {
    /// Page tables with as much memory as tests need.
    ///
    /// # Panics
    /// If the system has no address space.
    pub fn new() -> Self {
        Self::with_memory(DEFAULT_MEMORY).expect("address space for frames")
    }

    /// Page tables whose pages and tables may take `bytes`. These are address
    /// space only: the budget limits the mapped pages, and the tables for
    /// them; twice the budget is enough for any use of it. Memory that
    /// was used once stays with the process.
    pub fn with_memory(bytes: usize) -> Result<Self, MmuError> {
        Self::with_huge_memory(bytes, 0)
    }

    /// The same, and `huge_bytes` for pools of huge pages.
    pub fn with_huge_memory(bytes: usize, huge_bytes: usize) -> Result<Self, MmuError> {
        let frames = Frames::with_huge(bytes, huge_bytes, SHARDS).ok_or(MmuError::NoMemory)?;
        let next_huge = Mutex::new(frames.huge().start);
        let tables = Tables::new(frames, Cores::new(MOST_CORES)).ok_or(MmuError::NoMemory)?;
        Ok(Self {
            tables,
            windows: Parts::new(),
            next_huge,
            moves: Mutex::new(None),
        })
    }

    /// From now on moves into windows behave as `moves` says: memory is copied, and the source may not be used any more.
    /// For tests.
    pub fn set_moves(&self, moves: SoftMoves) {
        *self.moves.lock() = Some(moves);
    }

    /// Pages present in all windows.
    pub fn present_pages(&self) -> usize {
        let mut pages = 0;
        for part in self.windows.iter() {
            for window in part.lock().iter() {
                let count = |leaf: tables::PteTable<'_, ENTRIES>, _| pages += leaf.used() as usize;
                self.tables.for_each_leaf(window.clone(), count);
            }
        }
        pages
    }

    /// Pages that are tables, the root among them, but not those that no window needs and that stay for a processor's next one.
    pub fn table_pages(&self) -> usize {
        let mut stay = 0;
        for part in self.windows.iter() {
            stay += self.tables.count_above_leaf(&part.lock().before_first());
        }
        self.tables.count() as usize - stay
    }
}

/// The behaviour of moves into windows, and of moved memory, in a test.
#[derive(Debug, Clone, Copy)]
pub struct SoftMoves {
    /// The result of a move.
    pub moved: Moved,
    /// Moved memory can be split.
    pub splits: bool,
}

impl From<NoFrame> for MmuError {
    fn from(_: NoFrame) -> Self {
        Self::NoMemory
    }
}

/// Panics unless the pages are the window's.
fn check(window: &Reservation, addr: usize, bytes: usize) -> Range<usize> {
    let range = addr..addr + bytes;
    let all = window.range();
    assert!(
        all.start <= addr && range.end <= all.end && addr.is_multiple_of(PAGE_SIZE),
        "pages {range:x?} of window {all:x?}"
    );
    range
}

/// In a window's token: pages that are copied into it may be written to.
const WRITABLE: u32 = 1;

impl Mmu for SoftMmu {
    fn reserve(&self, bytes: usize, protection: Protection) -> Result<Reservation, MmuError> {
        let bytes = bytes.next_multiple_of(PAGE_SIZE);
        let addr = self.windows.take(bytes).ok_or(MmuError::NoMemory)?;
        let token = match protection {
            Protection::ReadWrite => WRITABLE,
            Protection::None | Protection::Read => 0,
        };
        Ok(Reservation { addr, bytes, token })
    }

    fn release(&self, window: Reservation) {
        self.tables.zap(&[window.range()]);
        let detached = {
            let part = self.windows.of(window.addr);
            let mut windows = part.expect("a window that was reserved").lock();
            let between = windows.give(window.addr);
            self.tables.detach_tables(window.range(), between)
        };
        // Cores may still walk these tables, but no entry leads there: the addresses may be reserved again meanwhile.
        if !detached.is_empty() {
            self.tables.free_detached(detached);
        }
    }

    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], access: Access) -> Result<(), MmuError> {
        let (window, addr) = to;
        let range = check(window, addr, of.len());
        let writable = window.token == WRITABLE && access == Access::Writable;
        // SAFETY: the source is readable for the range, says the caller.
        unsafe { self.tables.copy(range, of.cast(), writable)? };
        Ok(())
    }

    fn reserve_for_moves(&self, bytes: usize) -> Option<Reservation> {
        let has_moves = self.moves.lock().is_some();
        has_moves.then(|| self.reserve(bytes, Protection::Read).ok())?
    }

    unsafe fn move_in(&self, to: Place<'_>, from: *mut u8) -> Moved {
        let moved = self.moves.lock().map_or(Moved::Never, |moves| moves.moved);
        if matches!(moved, Moved::All | Moved::Lost) {
            let of = core::ptr::slice_from_raw_parts(from.cast_const(), TABLE_SPAN);
            // SAFETY: the caller's promise.
            let copied = unsafe { self.copy(to, of, Access::ReadOnly) };
            // SAFETY: as above; a thread that still reads it is found out.
            unsafe { from.write_bytes(0xDB, TABLE_SPAN) };
            if copied.is_err() {
                return Moved::Lost;
            }
        }
        moved
    }

    fn split(&self, _span: &Range<usize>, _addr: usize) -> bool {
        self.moves.lock().is_none_or(|moves| moves.splits)
    }

    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        self.tables.hole(check(window, addr, bytes))?;
        Ok(())
    }

    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        self.tables.fill(check(window, addr, bytes))?;
        Ok(())
    }

    fn fork(
        &self,
        parent: &Reservation,
        range: Range<usize>,
        child: &Reservation,
    ) -> Result<(), MmuError> {
        assert_eq!(parent.bytes, child.bytes, "a window forks into its like");
        let at = child.addr + (range.start - parent.addr);
        self.tables.fork(range, at)?;
        Ok(())
    }

    fn make_writable(&self, window: &Reservation, addr: usize) -> Result<(), MmuError> {
        check(window, addr, PAGE_SIZE);
        self.tables.make_writable(addr)?;
        Ok(())
    }

    fn zero_page(&self, window: &Reservation, addr: usize) -> Result<Zeroed, MmuError> {
        self.tables.hole(check(window, addr, PAGE_SIZE))?;
        Ok(Zeroed::Nothing)
    }

    fn protect(&self, ranges: &[Range<usize>]) {
        self.tables.protect(ranges);
    }

    fn protect_window(&self, window: &Reservation) -> bool {
        self.tables.protect(core::slice::from_ref(&window.range()));
        true
    }

    fn bytes(&self, window: &Reservation, addr: usize) -> *const u8 {
        check(window, addr, PAGE_SIZE);
        self.tables.bytes(addr)
    }

    fn move_pages(&self, from: Place<'_>, to: Place<'_>, bytes: usize) -> Result<(), PartialMove> {
        let from = check(from.0, from.1, bytes);
        let to = check(to.0, to.1, bytes);
        self.tables.move_pages(from, to.start)
    }

    fn flush_tlbs(&self) {
        self.tables.cores.shootdown();
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        self.tables.zap(ranges);
    }

    unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool {
        let Some(part) = self.windows.of(addr) else {
            return false;
        };
        let windows = part.lock();
        if windows.find(&(addr..addr + bytes)).is_none() {
            return false;
        }
        // SAFETY: the caller vouches for the target; the window stays while
        // the list is locked.
        unsafe { self.tables.read(addr, target, bytes) }
    }
}
