//! Page tables, as a trait: the kernel's through userfaultfd, or our own in
//! memory.
//!
//! An [`Mmu`] maps whole runs of pages and zaps whole batches. It holds no
//! lock that a caller could meet again: exclusion between a fault and reclaim
//! of the same page is the folio lock's business, and of the same page table
//! the range word's (`cache::window`).

use crate::PAGE_SIZE;
use crate::page::Protection;
use core::ops::Range;
use sync::bytes;

pub mod gather;
pub mod soft;
pub use soft::{Core, SoftMmu};

/// Bytes that one page table covers: Linux frees a table only when this whole
/// range is zapped.
pub const TABLE_SPAN: usize = 2 << 20;

/// The errno of page tables that have no such operation.
const ENOSYS: i32 = 38;

/// Why pages could not be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmuError {
    /// The machine has no more memory, address space or file descriptors.
    NoMemory,
    /// The window is gone: it was unmapped, or never was one.
    Gone,
    /// Page tables of this kind are not to be had here, and why: an errno.
    Closed(i32),
    /// The system answered something that should not happen: its errno.
    System(i32),
}

/// A move of pages that has ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialMove {
    /// Why.
    pub error: MmuError,
    /// Bytes up to the first page that has not moved, nor any behind it.
    pub moved: usize,
}

impl PartialMove {
    /// Nothing has moved.
    pub fn all(error: MmuError) -> Self {
        Self { error, moved: 0 }
    }
}

/// Address space whose pages are all missing until mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// First address, a multiple of [`TABLE_SPAN`].
    pub addr: usize,
    /// Bytes, a multiple of the page size.
    pub bytes: usize,
    /// The Mmu's own note of where it belongs.
    pub token: u32,
}

impl Reservation {
    /// The addresses.
    pub fn range(&self) -> Range<usize> {
        self.addr..self.addr + self.bytes
    }
}

/// An address in a window.
pub type Place<'a> = (&'a Reservation, usize);

/// The allowed access to pages that are being mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// They are read. A write, where the window may be written to at all, ends
    /// in a fault.
    ReadOnly,
    /// All that the window's protection allows.
    Writable,
}

/// How a zero page was mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeroed {
    /// The shared zero page, which costs no memory; a write to it ends in a fault.
    Nothing,
    /// A page of memory, which may have been written to.
    Memory,
}

/// The result of a move of memory into a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It is there.
    All,
    /// It was not moved, and has to be copied: it is not one piece, or it is in use.
    NotNow,
    /// The same, and moves into this window will fail from now on.
    Never,
    /// The system had no memory half-way. Nothing of either may be used any more.
    Lost,
}

/// A page that was protected, and then written somewhere, from where it is.
#[derive(Debug, Clone)]
pub struct WrittenPage {
    /// Its window.
    pub window: Reservation,
    /// Where it is.
    pub addr: usize,
    /// Its checksum, as of between the two.
    pub sum: u64,
    /// The written bytes may be older than the page.
    pub stays: bool,
}

/// Page tables.
pub trait Mmu: Send + Sync {
    /// Reserves `bytes` of address space whose pages are all missing, and may
    /// be used as `protection` says once they are there. A touch there ends in
    /// [`fault::handle`](crate::fault::handle).
    fn reserve(&self, bytes: usize, protection: Protection) -> Result<Reservation, MmuError>;

    /// As [`reserve`](Self::reserve) of a window that is only read, into which memory of the caller's can be moved
    /// ([`move_in`](Self::move_in)). `None` where there is no such window.
    fn reserve_for_moves(&self, _bytes: usize) -> Option<Reservation> {
        None
    }

    /// Moves [`TABLE_SPAN`] bytes of memory from `from` to a place in a window of [`reserve_for_moves`](Self::reserve_for_moves)
    /// where nothing is; both are multiples of that. On success it is there and may be read, and `from` has no memory.
    ///
    /// # Safety
    /// The memory is the caller's alone, all of it was written, and nobody accesses it.
    unsafe fn move_in(&self, _to: Place<'_>, _from: *mut u8) -> Moved {
        Moved::Never
    }

    /// Splits the huge page that was moved in to `span` into pages that go one by one. `false` if that cannot be just now. The caller
    /// has the page at `addr` of it locked, and is about to zap it: it may be gone already.
    fn split(&self, _span: &Range<usize>, _addr: usize) -> bool {
        true
    }

    /// A program writes to a read-only window. Where page tables are the system's, the system is to refuse the write.
    /// True if the next touch will be refused.
    fn refuse_writes(&self, _window: &Reservation) -> bool {
        false
    }

    /// Gives a whole reservation back.
    fn release(&self, window: Reservation);

    /// The same, of one that was zapped as a whole, by [`zap_all`](Self::zap_all), and that nothing was mapped into since.
    fn release_zapped(&self, window: Reservation) {
        self.release(window);
    }

    /// A part of a reservation that is still held was given back: a touch from before
    /// may arrive now.
    fn part_released(&self, _part: &Range<usize>) {}

    /// Nobody has a map of the window any more, and the next may get it as it is: undoes what the program may have done to the
    /// kernel's mapping by calls of its own, such as `mprotect(2)`, as far as the kernel lets it.
    fn renew(&self, _window: &Reservation) {}

    /// Maps a copy `of` these bytes at a place, for `access`. Pages that are
    /// already there are left as they are. On success the whole run is present.
    ///
    /// # Safety
    /// The bytes are readable, and as many fit into the window from there.
    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], access: Access) -> Result<(), MmuError>;

    /// As [`copy`](Self::copy) of pages to be read, none of which is there. One that is there all the same is an error, since it would
    /// keep the bytes that it has; others may be mapped then.
    ///
    /// # Safety
    /// As for `copy`.
    unsafe fn copy_absent(&self, to: Place<'_>, of: *const [u8]) -> Result<(), MmuError> {
        // SAFETY: the caller's promise.
        unsafe { self.copy(to, of, Access::ReadOnly) }
    }

    /// Maps `bytes` at `addr`, of a window that is only read, as zeros that cost
    /// no memory.
    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError>;

    /// Maps `bytes` at `addr` as zeroed memory of their own, writable. Pages
    /// that are already there are left as they are.
    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError>;

    /// Maps the missing page at `addr`, of a window that may be written to, as
    /// zeros, which cost no memory where the system has a way to see every
    /// write to them. The caller has paid for a page, and gets it back if the
    /// answer is [`Zeroed::Nothing`].
    fn zero_page(&self, window: &Reservation, addr: usize) -> Result<Zeroed, MmuError>;

    /// False where pages cannot be protected: dirty pages can then not be
    /// taken out without losing writes, pages cannot be mapped
    /// [`Access::ReadOnly`] into a window that may be written to, and nobody calls
    /// [`protect`](Self::protect).
    fn can_protect(&self) -> bool {
        true
    }

    /// Write-protects the present pages of the ranges; the ranges lie
    /// in reservations for writing that are still held. When it returns no thread writes there any
    /// more: a write ends in a fault, until [`make_writable`](Self::make_writable).
    fn protect(&self, ranges: &[Range<usize>]);

    /// True if [`spare_pinned`](Self::spare_pinned) finds pages that devices write to.
    fn sees_pins(&self) -> bool {
        false
    }

    /// A checksum of a page as it is about to be written.
    ///
    /// # Safety
    /// `page` is readable for a page, and nobody writes to it.
    unsafe fn sum(&self, _page: *const u8) -> u64 {
        0
    }

    /// True if a system call that reads a missing page waits until its fault is served; otherwise such a call fails. Then no holder
    /// of a page's lock hands the page to a store or to swap, since the program can have thrown it away: they get the copy that
    /// [`copy_out`](Self::copy_out) makes, which [`can_copy_out`](Self::can_copy_out) does not refuse.
    fn calls_wait(&self) -> bool {
        false
    }

    /// Takes these pages out of their windows, but for those that a device is writing to, or has written to since their
    /// sums were made: [`WrittenPage::stays`] says so of these.
    fn spare_pinned(&self, _pages: &mut [WrittenPage]) {}

    /// True if the page at `addr`, which is mapped, has these bytes, as of some moment while this looks. False of one that the
    /// program has thrown away, or that may not be read, or where [`copy_out`](Self::copy_out) is refused.
    ///
    /// # Safety
    /// `page` is readable for a page, and nobody writes to it.
    unsafe fn is_same(&self, window: &Reservation, addr: usize, page: *const u8) -> bool {
        if self.is_missing(addr) {
            return false;
        }
        let shown = self.bytes(window, addr).cast::<u64>();
        (0..PAGE_SIZE / size_of::<u64>()).all(|word| {
            // SAFETY: within a page that is present, aligned as pages are. Volatile: the program may write to it.
            let shown = unsafe { shown.add(word).read_volatile() };
            // SAFETY: the caller's promise.
            shown == unsafe { page.cast::<u64>().add(word).read() }
        })
    }

    /// Which of some pages from `start` on, a bit each, may be the same as the page of that number at `with`: of the others
    /// [`is_same`](Self::is_same) would say that they are not. For page tables that see the first bytes of many pages by one call.
    ///
    /// # Safety
    /// Each of these pages at `with` is readable, and nobody writes to it.
    unsafe fn may_be_same(&self, _start: usize, pages: u32, _with: *const u8) -> u32 {
        pages
    }

    /// Takes the leave to write away from all that is present in a window for writing, in one go. As of
    /// [`protect`](Self::protect). False where it cannot, and then perhaps a part is protected.
    fn protect_window(&self, _window: &Reservation) -> bool {
        false
    }

    /// Where the bytes of the page at `addr`, which is present, can be read. They
    /// stay there until the page is zapped or written to, so the caller has
    /// protected it and keeps others from changing that.
    fn bytes(&self, window: &Reservation, addr: usize) -> *const u8;

    /// False where [`copy_out`](Self::copy_out) is refused now: then nobody calls it.
    fn can_copy_out(&self) -> bool {
        true
    }

    /// Copies the page at `addr` out; false if it is missing: the program can throw it away at any moment where page tables
    /// are the system's. An errno if it is there and may not be read. Of a page that is not protected, each word is of some moment
    /// meanwhile. Nobody maps or zaps the page meanwhile.
    ///
    /// # Safety
    /// `to` is writable for a page, by the caller alone.
    unsafe fn copy_out(&self, window: &Reservation, addr: usize, to: *mut u8) -> Result<bool, i32> {
        // SAFETY: a page that is present; the caller's promise.
        unsafe { bytes::load(self.bytes(window, addr), to, PAGE_SIZE) };
        Ok(true)
    }

    /// Copies the pages of some ranges out, one behind the other, as [`copy_out`](Self::copy_out) does, and answers how many. It may
    /// stop at any page, and stops at the first that is missing or may not be read. For page tables that copy many pages by one
    /// call.
    ///
    /// # Safety
    /// `to` is writable for all of them, by the caller alone.
    unsafe fn copy_out_all(
        &self,
        _: &Reservation,
        _ranges: &[Range<usize>],
        _to: *mut u8,
    ) -> usize {
        0
    }

    /// Moves the present pages of `bytes` at `from` to the same distances from `to`,
    /// where nothing is. No thread maps, zaps or uses pages of either meanwhile. Writes
    /// to moved pages may end in a fault, and do where they did before. After an
    /// error each page is in one of both places: [`PartialMove`] says in which.
    fn move_pages(&self, from: Place<'_>, to: Place<'_>, bytes: usize) -> Result<(), PartialMove>;

    /// Makes the window `child`, as long as `parent`, show all that `parent` shows in
    /// `range`, where `child` shows nothing; a page is copied when either side writes
    /// to it. Protected pages stay protected, in both. No thread maps or zaps pages of either
    /// range meanwhile. After an error `child` shows a part. The budget is the
    /// caller's business: it has paid for all copies.
    fn fork(
        &self,
        _parent: &Reservation,
        _range: Range<usize>,
        _child: &Reservation,
    ) -> Result<(), MmuError> {
        Err(MmuError::Closed(ENOSYS))
    }

    /// The page at `addr`, present but not to be written to (protected, shared
    /// since a fork, or zeros that cost no memory), becomes the window's own and
    /// writable. A page that is missing, or writable already, is left alone.
    fn make_writable(&self, window: &Reservation, addr: usize) -> Result<(), MmuError>;

    /// Takes the right to write to a part of a window away from the processor, in any state of its
    /// pages, or gives it back; the window was reserved for writing. All other verbs go on
    /// as before. Reading stays allowed: pages that go to swap are read where they are.
    /// Where the processor goes by VMAs, there is nothing to do.
    fn restrict(
        &self,
        _window: &Reservation,
        _part: &Range<usize>,
        _protection: Protection,
    ) -> Result<(), MmuError> {
        Ok(())
    }

    /// Returns when no thread uses buffered translations of the space's old
    /// VMAs any more: a VMA was taken away, moved, or allows less. Where accesses are
    /// the processor's own, there is nothing to do: it knows windows only.
    fn flush_tlbs(&self) {}

    /// True if the page at `addr`, of a window, is certainly not there, although it was
    /// mapped and nobody has zapped it: the program can do so where page tables are the
    /// system's. Nobody maps or zaps the page meanwhile.
    fn is_missing(&self, _addr: usize) -> bool {
        false
    }

    /// True if the page at `addr`, of a window, is there, and its bytes are not to be had: the system
    /// took them to its swap, and cannot read them back. Nobody maps or zaps the page meanwhile.
    fn is_lost(&self, _addr: usize) -> bool {
        false
    }

    /// Unmaps all the ranges, in one go where the system can. They lie in
    /// reservations that are still held.
    fn zap(&self, ranges: &[Range<usize>]);

    /// The same. True if it is certain that nothing is left in any of them: a system may refuse to unmap what the program
    /// has sealed.
    fn zap_all(&self, ranges: &[Range<usize>]) -> bool {
        self.zap(ranges);
        false
    }

    /// Copies mapped bytes out: `false` if a page of `addr..` is missing.
    ///
    /// # Safety
    /// `target` is writable for `bytes`.
    unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool;
}
