//! The pages of a backing that were written to, and that its store does not have yet.
//!
//! ```text
//!   mapped, protected ──write──► DIRTY, writable ──write-back──► mapped, protected
//!                     (fault/file/write.rs)    (reclaim/write_back.rs)    │
//!                                                                        └─ evicted
//! ```
//!
//! A page is dirty if its bit is set in its folio, and from before the first write to it: the page
//! tables let nobody write to a page whose bit is not set. Both change under the folio lock. Write-back
//! protects the page, copies it, clears its bit and unlocks the folio, which is `writeback` until the store has the
//! copy. So no write is lost, the store gets no half of a write, and a thread that writes meanwhile waits for
//! no device: the page becomes dirty once more. Eviction and truncate write straight from the window instead, and keep the
//! folio lock until the store has the page: it is about to go. Pages that are pinned may be in the hands of a system call, which fails
//! where a page is protected: they are written as they are, and stay dirty.
//!
//! A folio that is `writeback` is not written once more, evicted, truncated or read again before that is over. Its
//! thread has a reference, so reclaim and write-back by age pass it by; all others wait in [`Node::wait_for_writeback`].
//!
//! **Epochs.** To protect pages one by one costs a flush of all processors' TLBs each. Pages that lie close together are protected
//! by one call, with all that is between them. Where many are scattered, the
//! whole window is protected in one go: a new epoch begins before that, and pages that were made writable in an
//! earlier one are protected afterwards. A thread that makes a page writable notes the epoch after it: if that is still the old one, the
//! page was writable before the new one began, and is protected with all others. Nobody does that while pages are pinned.

use super::folio::{Folio, flag};
use super::{MapError, Node, PageCache};
use crate::PAGE_SIZE;
use crate::budget::{FLOOR, SLICE_NS};
use crate::lock::Mutex;
use crate::mmu::MmuError;
use crate::page::{FaultError, Interrupt};
use crate::reclaim::{Batches, Copies};
use crate::store::{StoreError, WriteBack};
use core::ops::Range;
use sync::Arc;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::wait::WaitWord;

/// Of a node's files.
pub(crate) struct DirtyPages {
    /// Pages that are dirty, and copies of pages that are being written.
    dirty: AtomicU64,
    /// Those of them whose folios are pinned. Of each folio it changes under its lock. Relaxed: a bound, more or less.
    pinned: AtomicU64,
    /// Pages of folios that keep their frames, since writes to them are expected. Relaxed: a bound, more or less.
    expected: AtomicU64,
    /// Pages that are held for write-back since the first of the files.
    held: Mutex<u64>,
    /// How many write-backs of copies have ended: threads that need the end of one wait here.
    ended: WaitWord,
}

impl Default for DirtyPages {
    fn default() -> Self {
        Self {
            dirty: AtomicU64::new(0),
            pinned: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            held: Mutex::new(0),
            ended: WaitWord::new(0),
        }
    }
}

/// The destination of a backing's dirty pages.
pub(crate) struct Writes {
    /// Immutable.
    to: Arc<dyn WriteBack>,
    /// Held over a sync and the note of its error: the kernel tells an open file's error once, and all flushes use one open file.
    syncing: Mutex<()>,
    /// Dirty pages of this backing, and copies of its pages that are being written. Relaxed: a count.
    dirty: AtomicU64,
    /// How often write-back has failed, and above that how it did so last.
    failed: AtomicU64,
    /// The epoch that has begun. Changed and read by read-modify-writes, as `protecting` and the pins are: see
    /// [`PageCache::protect_window`].
    epoch: AtomicU32,
    /// Up to this one, pages that were made writable before are protected. Release: after the window is.
    protected: AtomicU32,
    /// 1 while a thread protects the whole window.
    protecting: AtomicU32,
}

/// Of `Writes::failed`: the count. The rest is the errno, with [`SHORT`] for none.
const COUNT: u64 = u32::MAX as u64;
const SHORT: u32 = u32::MAX;

impl Writes {
    pub(super) fn new(to: Arc<dyn WriteBack>) -> Self {
        Self {
            to,
            syncing: Mutex::new(()),
            dirty: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            protected: AtomicU32::new(0),
            protecting: AtomicU32::new(0),
        }
    }

    /// The store.
    pub(crate) fn to(&self) -> &dyn WriteBack {
        &*self.to
    }

    /// Makes written pages durable. A caller that finds no error of its own finds that of another, noted.
    pub(super) fn sync(&self) {
        let _syncing = self.syncing.lock();
        if let Err(error) = self.to.sync() {
            self.note(error);
        }
    }

    /// A page could not be written.
    pub(crate) fn note(&self, error: StoreError) {
        let why = match error {
            StoreError::Io(errno) => errno as u32,
            StoreError::Short => SHORT,
        };
        let add = |before: u64| Some((before + 1) & COUNT | u64::from(why) << 32);
        // Relaxed: a count, and errors are asked for after the write-back has ended.
        let _ = (self.failed).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

impl PageCache {
    /// True if it can be written to.
    pub fn is_writable(&self) -> bool {
        self.writes.is_some()
    }

    /// Pages that the store has not got yet. Errors of writes that it does not count any more have been noted.
    pub fn dirty_pages(&self) -> u64 {
        let dirty = |writes: &Writes| writes.dirty.load(Ordering::Acquire);
        self.writes.as_ref().map_or(0, dirty)
    }

    /// The error, if write-back has failed since the call that left its count in `seen`.
    pub fn write_error_since(&self, seen: &mut u32) -> Option<FaultError> {
        let failed = self.writes.as_ref()?.failed.load(Ordering::Relaxed);
        let count = (failed & COUNT) as u32;
        if core::mem::replace(seen, count) == count {
            return None;
        }
        let error = match (failed >> 32) as u32 {
            SHORT => StoreError::Short,
            errno => StoreError::Io(errno as i32),
        };
        Some(error.of_write())
    }

    /// Makes pages dirty that are not. The caller holds the folio lock, and lets nobody write to them
    /// before.
    pub(crate) fn begin_dirty(&self, folio: &Folio, pages: Range<usize>) {
        let dirty = folio.dirty_pages();
        let more = (pages.step_by(PAGE_SIZE)).fold(0, |more, addr| more | folio.bit_of(addr));
        debug_assert!(self.is_writable() && dirty & more == 0);
        self.set_dirty(folio, dirty | more);
        self.count_dirty(u64::from(more.count_ones()));
    }

    /// Notes that a page of the folio has been made writable. The caller holds its lock.
    pub(crate) fn note_writable(&self, folio: &Folio) {
        let writes = self.writes.as_ref().expect("it can be written to");
        // Release pairs with the Acquire in `protect_window`: if this is still the old epoch, a page that was made
        // writable before is protected after.
        folio.set_dirty_epoch(writes.epoch.fetch_add(0, Ordering::AcqRel) as u16);
    }

    /// True if nobody can write to the dirty pages of a folio that is not pinned: the whole window was protected since.
    /// The caller holds its lock.
    pub(crate) fn is_protected(&self, folio: &Folio) -> bool {
        let writes = self.writes.as_ref().expect("it can be written to");
        let protected = writes.protected.load(Ordering::Acquire) as u16;
        // Of very long ago, or of now: it is protected once more.
        let since = protected.wrapping_sub(folio.dirty_epoch());
        0 < since && since < 1 << 15
    }

    /// Calls `protect` while no page is pinned, nor will be. False if pages are pinned, or another is at it.
    pub(crate) fn while_unpinned(&self, protect: impl FnOnce()) -> bool {
        let Some(writes) = &self.writes else {
            return false;
        };
        if writes.protecting.swap(1, Ordering::AcqRel) == 1 {
            return false;
        }
        // Read-modify-writes, which come one after the other: a pin after this one sees `protecting` too.
        let may = self.pinned.fetch_add(0, Ordering::AcqRel) == 0;
        if may {
            protect();
        }
        writes.protecting.swap(0, Ordering::AcqRel);
        may
    }

    /// Protects all that is present in the window. False if that cannot be, or may not: pages are pinned, or
    /// another is at it.
    pub fn protect_window(&self) -> bool {
        let Some(writes) = &self.writes else {
            return false;
        };
        let mut done = false;
        self.while_unpinned(|| {
            let epoch = writes.epoch.fetch_add(1, Ordering::AcqRel) + 1;
            done = self.node.mmu.protect_window(self.window.reservation());
            if done {
                writes.protected.store(epoch, Ordering::Release);
            } else {
                // Or pages that were made writable since would look older than the last protection, once it has failed often.
                writes.epoch.fetch_sub(1, Ordering::AcqRel);
            }
        });
        done
    }

    /// Returns when nobody protects pages that are not its own, after the caller has had a pin admitted: from then on nobody
    /// does.
    pub fn wait_for_protection(&self) {
        let Some(writes) = &self.writes else { return };
        while writes.protecting.fetch_add(0, Ordering::AcqRel) == 1 {
            sync::thread::yield_now();
        }
    }

    /// Only these pages of a folio are dirty. The caller holds its lock.
    fn set_dirty(&self, folio: &Folio, pages: u32) {
        if folio.is_pinned() {
            self.count_pinned(folio.dirty_pages(), pages);
        }
        folio.set_dirty_pages(pages);
    }

    /// Counts a pin of a folio in. The caller holds its lock, and a reference that the pin keeps.
    pub(crate) fn pin_folio(&self, folio: &Folio) {
        if folio.pin() {
            self.count_pinned(0, folio.dirty_pages());
        }
    }

    /// Counts a pin out; true if it was the last. The caller holds the folio lock.
    pub(crate) fn unpin_folio(&self, folio: &Folio) -> bool {
        let last = folio.unpin();
        if last {
            self.count_pinned(folio.dirty_pages(), 0);
        }
        last
    }

    /// These dirty pages of a pinned folio, and not those before.
    fn count_pinned(&self, before: u32, now: u32) {
        let (before, now) = (before.count_ones(), now.count_ones());
        if before != now {
            let more = u64::from(now).wrapping_sub(before.into());
            self.node.dirty.pinned.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// So many pages more.
    fn count_dirty(&self, pages: u64) {
        if pages > 0 {
            let writes = self.writes.as_ref().expect("it can be written to");
            writes.dirty.fetch_add(pages, Ordering::Relaxed);
            (self.node.dirty.dirty).fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// Only these pages of a folio are dirty any more. The caller holds its lock; nobody can write
    /// to the others.
    pub(crate) fn end_dirty(&self, folio: &Folio, left: u32) {
        let before = folio.dirty_pages();
        debug_assert_eq!(left & !before, 0);
        self.set_dirty(folio, left);
        self.count_clean((before & !left).count_ones());
    }

    /// Copies of `sent` pages of a folio are about to be written, and of all its pages only `left` are dirty any more. The copies
    /// are counted until [`end_writeback`](Self::end_writeback) gets their result. The caller holds its lock, and has a
    /// reference, which it keeps until the end; nobody can write to the pages that are not left dirty.
    pub(crate) fn begin_writeback(&self, folio: &Folio, sent: u32, left: u32) {
        let before = folio.dirty_pages();
        debug_assert_eq!((left | sent) & !before, 0);
        // First: a thread that finds that it is not dirty any more finds this.
        folio.set_writeback(true);
        self.set_dirty(folio, left);
        // In one step, of none as a rule: at no time is less counted than the store has not got.
        let (cleaned, sent) = ((before & !left).count_ones(), sent.count_ones());
        match sent.checked_sub(cleaned) {
            Some(more) => self.count_dirty(u64::from(more)),
            None => self.count_clean(cleaned - sent),
        }
    }

    /// Copies of `sent` pages of a folio have been written; those that `failed` are dirty again. The caller holds its lock if some did, and
    /// says to the folio that this is over.
    pub(crate) fn end_writeback(&self, folio: &Folio, sent: u32, failed: u32) {
        let mut again = 0;
        if failed != 0 {
            let dirty = folio.dirty_pages();
            again = (failed & !dirty).count_ones();
            self.set_dirty(folio, dirty | failed);
        }
        self.count_clean(sent.count_ones() - again);
    }

    /// So many pages fewer.
    fn count_clean(&self, pages: u32) {
        if pages > 0 {
            let writes = self.writes.as_ref().expect("it can be written to");
            // Release pairs with the Acquire in `dirty_pages`.
            writes.dirty.fetch_sub(u64::from(pages), Ordering::Release);
            (self.node.dirty.dirty).fetch_sub(u64::from(pages), Ordering::Relaxed);
        }
    }

    /// True if `addr`'s page is in the window and may be written to.
    pub(crate) fn is_writable_at(&self, addr: usize) -> bool {
        let is_dirty = |folio: &Folio| folio.dirty_pages() & folio.bit_of(addr) != 0;
        (self.find(addr)).is_some_and(|folio| folio.is(flag::MAPPED) && is_dirty(&folio))
    }
}

impl Node {
    /// A file is about to be written to: the memory for write-back is held from the first such file on.
    pub(super) fn will_write(&self) -> Result<(), MapError> {
        let mut held = self.dirty.held.lock();
        if *held == 0 {
            let copies = Copies::under(self.budget.limit());
            let pages = Batches::write_pages(copies);
            self.hold(pages)?;
            if !self.lru.will_write(copies) {
                self.let_go(pages);
                return Err(MmuError::NoMemory.into());
            }
            *held = pages;
        }
        Ok(())
    }

    /// The node goes.
    pub(in crate::cache) fn end_writes(&self) {
        let held = core::mem::take(&mut *self.dirty.held.lock());
        if held > 0 {
            self.let_go(held);
        }
    }

    /// Waits until no page of the folio is being written. False if interrupted. The caller has a reference, and neither a folio lock
    /// nor a batch of reclaim: a write that failed needs the lock.
    pub(crate) fn wait_for_writeback(&self, folio: &Folio, interrupt: &dyn Interrupt) -> bool {
        loop {
            // Acquire pairs with the Release in `wake_writeback_waiters`: if that has been, the folio's end is seen.
            let ended = self.dirty.ended.fetch_add(0, Ordering::Acquire);
            if !folio.is_writeback() {
                return true;
            }
            if interrupt.pending() {
                return false;
            }
            self.dirty.ended.wait(ended, Some(SLICE_NS));
        }
    }

    /// Write-backs of copies have ended, and their folios say so.
    pub(crate) fn wake_writeback_waiters(&self) {
        // Release pairs with the Acquire in `wait_for_writeback`.
        self.dirty.ended.fetch_add(1, Ordering::Release);
        self.dirty.ended.wake(u32::MAX);
    }

    /// Pages of files that were written to, and that their stores have not got yet.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.dirty.load(Ordering::Relaxed)
    }

    /// True if another folio may keep its frames: most are for reads.
    pub(crate) fn may_expect(&self) -> bool {
        let expected = self.dirty.expected.load(Ordering::Relaxed);
        expected < self.budget.limit() / 8
    }

    /// Writes to the folio are expected: it keeps its frames. The caller holds its lock.
    pub(crate) fn begin_expected(&self, folio: &Folio) {
        folio.change(flag::EXPECTED, 0);
        let pages = folio.pages() as u64;
        self.dirty.expected.fetch_add(pages, Ordering::Relaxed);
    }

    /// The folio's frames are free again: its dirty pages that were not written to are known, or need not be. The
    /// caller holds its lock.
    pub(crate) fn end_expected(&self, folio: &Folio) {
        if folio.is(flag::EXPECTED) {
            self.free_frames(folio);
            folio.change(0, flag::EXPECTED);
            let pages = folio.pages() as u64;
            self.dirty.expected.fetch_sub(pages, Ordering::Relaxed);
        }
    }

    /// True if another page may become dirty: where write-back fails, dirty pages stay, and
    /// faults that only read need pages that can be evicted. Pinned pages stay anyhow, dirty or not, and are counted as such.
    pub(crate) fn may_dirty(&self) -> bool {
        let (limit, held) = (self.budget.limit(), self.budget.held());
        let others = limit.saturating_sub(held + self.pinned_pages() + FLOOR);
        let pinned = self.dirty.pinned.load(Ordering::Relaxed);
        self.dirty_pages().saturating_sub(pinned) < others - others / 8
    }
}
