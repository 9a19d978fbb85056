//! A folio: a run of cached pages with one state.
//!
//! A folio covers 1 to 16 neighbouring pages of one 64 KiB block. Its bytes
//! are in frames (read, not yet touched) or in the window (mapped): mapping copies
//! them over and frees the frames. In both they are only while writes to it are expected.
//!
//! ```text
//!   allocated ── locked ──read──► uptodate, in frames ──map──► mapped
//!                  │                     │                       │
//!                  └─ error              └─ dropped untouched    └─ evicted
//! ```
//!
//! The folio lock is the `LOCKED` bit, with a `WAITERS` bit beside it. A thread that
//! reads, maps or evicts a folio holds it. A reference is taken under the lock
//! of the index's bucket; a folio that the index alone refers to may be
//! evicted, so a fault that waits for one holds a reference until it has come
//! back (`RetryPin::Yes`).
//!
//! A folio of the index that has been read, well or not, is on a reclaim list,
//! or isolated by one reclaimer, which evicts it or puts it back.

use crate::PAGE_SIZE;
use crate::cache::PageCache;
use crate::page::FaultError;
use crate::slab::TypeStable;
use core::ops::Range;
use sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use sync::wait::WaitWord;

/// Names no folio, in links.
pub const NO_FOLIO: u32 = u32::MAX;

/// `Folio::error` of a read past the end of the store. No errno is one of these.
const ERROR_BEYOND_END: u32 = u32::MAX;
/// The same of a read that brought less than was written.
const ERROR_SHORT: u32 = u32::MAX - 1;
/// Names no frame.
pub const NO_FRAME: u32 = u32::MAX;
/// The most pages in a folio, and the pages of a block of the index.
pub const BLOCK_PAGES: usize = 16;
/// Bytes of a block of the index.
pub const BLOCK_BYTES: usize = BLOCK_PAGES * PAGE_SIZE;
/// Of [`Folio::error`]: a bit a page.
const DIRTY_PAGES: u32 = (1 << BLOCK_PAGES) - 1;

/// The bits of [`Folio::state`].
pub mod flag {
    /// Somebody reads, maps or evicts the folio.
    pub const LOCKED: u32 = 1 << 0;
    /// Somebody sleeps until the lock is released.
    pub const WAITERS: u32 = 1 << 1;
    /// The bytes are those of the store.
    pub const UPTODATE: u32 = 1 << 2;
    /// The bytes are in the window.
    pub const MAPPED: u32 = 1 << 3;
    /// The read failed: `Folio::error` says how.
    pub const ERROR: u32 = 1 << 4;
    /// Zeros that were never written: no frames, no read, no memory.
    pub const HOLE: u32 = 1 << 5;
    /// Read ahead, and nobody has touched it yet.
    pub const READAHEAD: u32 = 1 << 6;
    /// The read was submitted: a waiter reaps it.
    pub const ASYNC: u32 = 1 << 7;
    /// Refaulted soon after eviction: kept on the active list.
    pub const ACTIVE: u32 = 1 << 8;
    /// No longer in the index; freed with its last reference.
    pub const DEAD: u32 = 1 << 9;
    /// Pinned when it was to be forgotten: the last pin forgets it.
    pub const DOOMED: u32 = 1 << 10;
    /// A fault on it begins the next window: Linux's PG_readahead. Cleared by
    /// the first such fault, with or without the folio lock.
    pub const MARKER: u32 = 1 << 11;
    /// Pages of it were written to, and the store has not got them: [`Folio::dirty_pages`](super::Folio)
    /// says which. Only of mapped folios.
    pub const DIRTY: u32 = 1 << 12;
    /// It was dirty already at the last look for old dirty folios.
    pub const AGED: u32 = 1 << 13;
    /// Dirty pages of it may not have been written to: the frames are still there to be compared.
    pub const EXPECTED: u32 = 1 << 14;
    /// Read ahead, and all but certain to be touched: it stays for longer.
    pub const SURE: u32 = 1 << 15;
}

/// A run of cached pages. A slot of a type-stable slab: every field is an
/// atomic, so that a late reader of a reused slot reads garbage but no torn
/// memory. One cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Folio {
    /// Bits of [`flag`]. `LOCKED`, `WAITERS` and `MARKER` change by themselves; all
    /// others are changed by the holder of the folio lock.
    pub(crate) state: WaitWord,
    /// 0 free, 1 the index's, more: waiters, pins, reads under way.
    /// Leaves 0 and 1 only under the bucket's lock.
    pub(super) refs: AtomicU32,
    /// Address of the first page in the window. Immutable while allocated.
    pub(super) addr: AtomicUsize,
    /// The page cache. Immutable while allocated; outlives the folio.
    pub(super) cache: AtomicPtr<PageCache>,
    /// Pages. Protected by the folio lock; only ever shrinks.
    pub(super) pages: AtomicU8,
    /// Pages that were asked of the frame pool. Immutable while allocated.
    pub(super) frame_pages: AtomicU8,
    /// Which reclaim list of which shard the folio is on: `reclaim::lists` says when it changes.
    pub(crate) list: AtomicU8,
    /// 1 while copies of its pages are being written to the store: Linux's PG_writeback. Set under the folio lock, by a
    /// thread that has a reference; that thread clears it without. Not a bit of `state`: a write-back ends at any time,
    /// and all changes of `state` and waits for it would meet it.
    writeback: AtomicU8,
    /// First frame or [`NO_FRAME`]. Protected by the folio lock.
    pub(super) frame: AtomicU32,
    /// The error of the last read: an errno, or an `ERROR_` above all of them. For mapped folios, whose read
    /// did not fail: which pages are dirty, a bit each, and above them when one was last made writable. Protected by
    /// the folio lock.
    pub(super) error: AtomicU32,
    /// Next in the bucket. Protected by the bucket's lock.
    pub(super) bucket_next: AtomicU32,
    /// Neighbours on a reclaim list. Protected by the shard's lock. While the
    /// folio is being read, and so on no list: the next folio of the read.
    pub(crate) list_next: AtomicU32,
    /// See `list_next`.
    pub(crate) list_prev: AtomicU32,
    /// The lists' clock when the folio was put on its list. As `list_next`.
    pub(crate) listed_at: AtomicU32,
    /// The first folio of the read that this one is in: the read's cookie. Set under the folio lock before `ASYNC`, and only read where that
    /// is set: the Release of its setting pairs with the Acquire of the reader's look at `state`.
    read_head: AtomicU32,
    /// Pins, each of which has a reference too. Protected by the folio lock.
    pins: AtomicU32,
    /// Place in the slab. Immutable.
    id: u32,
}

const _: () = assert!(size_of::<AtomicU32>() != 4 || size_of::<Folio>() == 64);

impl TypeStable for Folio {
    fn new_slot(id: u32) -> Self {
        Self {
            state: WaitWord::new(0),
            refs: AtomicU32::new(0),
            addr: AtomicUsize::new(0),
            cache: AtomicPtr::new(core::ptr::null_mut()),
            pages: AtomicU8::new(0),
            frame_pages: AtomicU8::new(0),
            list: AtomicU8::new(0),
            writeback: AtomicU8::new(0),
            frame: AtomicU32::new(NO_FRAME),
            error: AtomicU32::new(0),
            bucket_next: AtomicU32::new(NO_FOLIO),
            list_next: AtomicU32::new(NO_FOLIO),
            list_prev: AtomicU32::new(NO_FOLIO),
            listed_at: AtomicU32::new(0),
            read_head: AtomicU32::new(NO_FOLIO),
            pins: AtomicU32::new(0),
            id,
        }
    }
}

// Plain fields are Relaxed throughout: each is handed over by the lock that
// protects it.
impl Folio {
    /// Place in the slab.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Begins a read that `head` is the first folio of. The caller holds the
    /// folio lock, and sets `ASYNC` later.
    pub(crate) fn begin_read(&self, head: u32) {
        self.read_head.store(head, Ordering::Relaxed);
        self.list_next.store(NO_FOLIO, Ordering::Relaxed);
    }

    /// The cookie of the asynchronous read that the folio is in.
    pub(crate) fn read_cookie(&self) -> u64 {
        u64::from(self.read_head.load(Ordering::Relaxed))
    }

    /// Lets `next` follow in the read. The caller holds the lock of both.
    pub(crate) fn set_next_in_read(&self, next: &Folio) {
        self.list_next.store(next.id, Ordering::Relaxed);
    }

    /// The next folio of the read, or [`NO_FOLIO`]. The caller holds the folio
    /// lock and has not put the folio on a list.
    pub(crate) fn next_in_read(&self) -> u32 {
        self.list_next.load(Ordering::Relaxed)
    }

    /// The bits now.
    pub fn state(&self) -> u32 {
        // Acquire pairs with the Release in `unlock`: a thread that sees the bits
        // sees all that the holder of the folio lock did.
        self.state.load(Ordering::Acquire)
    }

    /// True if all of `bits` are set.
    pub fn is(&self, bits: u32) -> bool {
        self.state() & bits == bits
    }

    /// Addresses in the window.
    pub fn range(&self) -> Range<usize> {
        let addr = self.addr.load(Ordering::Relaxed);
        addr..addr + self.pages() * PAGE_SIZE
    }

    /// Pages.
    pub fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed) as usize
    }

    /// The page cache that the folio belongs to.
    pub(crate) fn cache(&self) -> &PageCache {
        // SAFETY: a page cache outlives its folios: its drop waits until none
        // is in the index, and only callers with a folio that is locked and in
        // the index ask.
        unsafe { &*self.cache.load(Ordering::Relaxed) }
    }

    /// How the read failed; the folio is `ERROR`.
    pub(crate) fn read_error(&self) -> FaultError {
        match self.error.load(Ordering::Relaxed) {
            ERROR_BEYOND_END => FaultError::BeyondEnd,
            ERROR_SHORT => FaultError::Short,
            errno => FaultError::Io(errno as i32),
        }
    }

    /// Says how the read failed. The caller holds the folio lock.
    pub(crate) fn set_read_error(&self, error: FaultError) {
        let error = match error {
            FaultError::BeyondEnd => ERROR_BEYOND_END,
            FaultError::Io(errno) => errno.max(0) as u32,
            _ => ERROR_SHORT,
        };
        self.error.store(error, Ordering::Relaxed);
    }

    /// Which pages are dirty: a bit each.
    pub(crate) fn dirty_pages(&self) -> u32 {
        match self.is(flag::DIRTY) {
            true => self.error.load(Ordering::Relaxed) & DIRTY_PAGES,
            false => 0,
        }
    }

    /// When one of its pages was last made writable, as its cache counts. The caller holds the folio lock.
    pub(crate) fn dirty_epoch(&self) -> u16 {
        (self.error.load(Ordering::Relaxed) >> BLOCK_PAGES) as u16
    }

    /// Says when. As above.
    pub(crate) fn set_dirty_epoch(&self, epoch: u16) {
        let pages = self.error.load(Ordering::Relaxed) & DIRTY_PAGES;
        let word = pages | u32::from(epoch) << BLOCK_PAGES;
        self.error.store(word, Ordering::Relaxed);
    }

    /// Says which are. The caller holds the folio lock, and the folio is mapped, or about to be.
    pub(crate) fn set_dirty_pages(&self, pages: u32) {
        debug_assert!(self.is(flag::UPTODATE) && pages >> self.pages() == 0);
        let epoch = self.error.load(Ordering::Relaxed) & !DIRTY_PAGES;
        self.error.store(epoch | pages, Ordering::Relaxed);
        match pages {
            0 => self.change(0, flag::DIRTY | flag::AGED),
            _ => self.change(flag::DIRTY, 0),
        }
    }

    /// True while copies of its pages are being written to the store. Under the folio lock no write-back begins.
    pub(crate) fn is_writeback(&self) -> bool {
        // Acquire pairs with the Release in `set_writeback`: the next read of the store finds the written bytes. A
        // read-modify-write, so that the answer is never an old one.
        self.writeback.fetch_or(0, Ordering::Acquire) != 0
    }

    /// Begins a write-back of copies, under the folio lock and with a reference; or ends it, without the lock. After that the caller
    /// wakes all waiters for the end (`Node::wake_writeback_waiters`).
    pub(crate) fn set_writeback(&self, writeback: bool) {
        // Release pairs with the Acquire in `is_writeback`.
        self.writeback.swap(writeback.into(), Ordering::Release);
    }

    /// The bit of the page at `addr`, which is one of it.
    pub(crate) fn bit_of(&self, addr: usize) -> u32 {
        1 << ((addr - self.range().start) / PAGE_SIZE)
    }

    /// The backing ends within the folio: only `pages` pages are left of it.
    /// The caller holds the folio lock, and the folio is on no list.
    pub fn shrink(&self, pages: usize) {
        debug_assert!(0 < pages && pages <= self.pages());
        self.pages.store(pages as u8, Ordering::Relaxed);
    }

    /// Prepares a fresh slot: locked, one reference, in nobody's sight.
    pub fn init(&self, cache: *const PageCache, addr: usize, pages: usize) {
        debug_assert!(pages >= 1 && addr % BLOCK_BYTES / PAGE_SIZE + pages <= BLOCK_PAGES);
        assert_eq!(self.refs.load(Ordering::Relaxed), 0, "folio slot in use");
        self.addr.store(addr, Ordering::Relaxed);
        self.cache.store(cache.cast_mut(), Ordering::Relaxed);
        self.pages.store(pages as u8, Ordering::Relaxed);
        self.frame_pages.store(0, Ordering::Relaxed);
        self.frame.store(NO_FRAME, Ordering::Relaxed);
        self.error.store(0, Ordering::Relaxed);
        debug_assert!(!self.is_writeback(), "freed while it was written");
        self.pins.store(0, Ordering::Relaxed);
        self.refs.store(1, Ordering::Relaxed);
        self.state.store(flag::LOCKED, Ordering::Relaxed);
    }

    /// Takes the folio lock if it is free.
    pub fn try_lock(&self) -> bool {
        // Acquire pairs with the Release in `unlock`.
        self.state.fetch_or(flag::LOCKED, Ordering::Acquire) & flag::LOCKED == 0
    }

    /// Clears the marker; true if this was the first to do so.
    pub fn take_marker(&self) -> bool {
        // Relaxed: picks the thread that begins a window, and orders nothing.
        self.state.fetch_and(!flag::MARKER, Ordering::Relaxed) & flag::MARKER != 0
    }

    /// Changes bits; the caller holds the folio lock.
    pub fn change(&self, set: u32, clear: u32) {
        debug_assert!(self.state.load(Ordering::Relaxed) & flag::LOCKED != 0);
        // Release pairs with the Acquire in `state`: a thread that finds the folio uptodate, locked or not, sees how many pages it
        // has, and one that finds it clean sees that it is being written.
        if clear != 0 {
            self.state.fetch_and(!clear, Ordering::Release);
        }
        if set != 0 {
            self.state.fetch_or(set, Ordering::Release);
        }
    }

    /// Counts a pin in; true if it is the first. The caller is [`PageCache::pin_folio`].
    pub(super) fn pin(&self) -> bool {
        self.pins.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Counts a pin out; true if it was the last. The caller is [`PageCache::unpin_folio`].
    pub(super) fn unpin(&self) -> bool {
        let before = self.pins.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a folio is unpinned as often as it was pinned");
        before == 1
    }

    /// True if somebody has pinned it. Stable under the folio lock.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Relaxed) > 0
    }

    /// Releases the folio lock and wakes all waiters.
    pub fn unlock(&self) {
        // Release pairs with the Acquire in `state` and `try_lock`.
        let before = self
            .state
            .fetch_and(!(flag::LOCKED | flag::WAITERS), Ordering::Release);
        assert!(before & flag::LOCKED != 0, "folio was not locked");
        if before & flag::WAITERS != 0 {
            // The slot may be somebody else's by now; its memory is not.
            self.state.wake(u32::MAX);
        }
    }

    /// Announces that the caller is about to wait for the folio lock; returns
    /// the bits to sleep on, or `None` if the lock is free. The caller holds a
    /// reference.
    pub fn announce_waiter(&self) -> Option<u32> {
        // AcqRel pairs with `wake_while_locked`: the caller's next step (it looks for
        // the read in its ring) comes after, for the thread that wakes.
        let state = self.state.fetch_or(flag::WAITERS, Ordering::AcqRel);
        // Left behind, the bit costs the next holder a wake-up call.
        (state & flag::LOCKED != 0).then_some(state | flag::WAITERS)
    }

    /// Sleeps while the bits are those that `announce_waiter` returned, or
    /// until `timeout_ns` have passed, or less.
    pub fn sleep(&self, announced: u32, timeout_ns: u64) {
        self.state.wait(announced, Some(timeout_ns));
    }

    /// Wakes the waiters although the folio stays locked: there is something
    /// new to do about it. The caller holds a reference.
    pub fn wake_while_locked(&self) {
        let before = self.state.fetch_and(!flag::WAITERS, Ordering::AcqRel);
        if before & flag::WAITERS != 0 {
            self.state.wake(u32::MAX);
        }
    }
}
