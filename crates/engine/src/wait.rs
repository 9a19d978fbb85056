//! The results of an attempt at a fault, the waits as values, and the waiting.
//!
//! A wait takes no lock of the address space. It holds the page cache and a
//! reference to the folio it is for: one that is read, or one that was read and finds
//! no memory to be mapped with. The waiter keeps it until the retry has
//! looked (`retry`), so that reclaim cannot take the folio in between.

use crate::anon::{Anonymous, FAULT_PAGES};
use crate::budget::{Need, SLICE_NS};
use crate::cache::folio::{Folio, NO_FOLIO, flag};
use crate::cache::reads::{Completion, baseline, read, unlocked};
use crate::cache::{FolioRef, Node, PageCache};
use crate::page::{FaultError, Interrupt};
use crate::readahead::RaWindow;
use crate::reclaim::memory_wait::{LONGEST_NS, STANDSTILL};
use crate::store::NO_COOKIE;
use sync::Arc;

/// Where a fault stands.
pub enum Fault {
    /// The page is there: touch it again.
    Mapped,
    /// The page or its VMA changed during the attempt: make another.
    Again,
    /// Wait for this, then come back.
    Retry(Wait),
    /// The touch cannot be served.
    Error(FaultError),
}

/// The wait of a fault. Holds a reference to the folio it names.
#[must_use = "the fault goes on after the wait"]
pub struct Wait {
    owner: Owner,
    reason: Reason,
    /// The folio that has to stay meanwhile, or [`NO_FOLIO`].
    folio: u32,
}

/// Whose page it is that the fault is for.
enum Owner {
    File(Arc<PageCache>),
    Anonymous(Arc<Anonymous>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The folio is ours to read, by this thread.
    Read,
    /// The same, and the store does not have it at hand.
    ReadMissing,
    /// The folio is ours to read, and this window around it.
    ReadAround(RaWindow),
    /// Somebody else reads the folio.
    Folio,
    /// Somebody else maps or evicts the folio.
    Busy,
    /// Pages of the folio are being written to the store.
    Writeback,
    /// There is not enough of something.
    Memory(Need),
    /// The page table at this address is being zapped.
    Table(usize),
    /// The store is to see to it that the page at this address can be written.
    Reserve(usize),
    /// The store may have become longer than the page at this address is far, or the page is on its way out of it.
    Length(usize),
    /// Another fault fills this page of anonymous memory.
    Page(usize),
    /// Nothing: this window is to be begun, with no lock in hand.
    Ahead(RaWindow),
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// Look again.
    Ready,
    /// Look again, but there was no room to be made.
    NoRoom,
    /// The same, and nothing at all came back in a whole slice.
    Standstill,
    /// Something else wants the thread.
    Interrupted,
    /// The wait has failed.
    Failed(FaultError),
}

impl Wait {
    /// The folio is locked by the caller, which is to read it.
    pub(crate) fn read(cache: &Arc<PageCache>, folio: FolioRef<'_>) -> Self {
        Self::new(cache, Reason::Read).keeping(folio)
    }

    /// As `read`, and a window around the folio.
    pub(crate) fn read_around(
        cache: &Arc<PageCache>,
        folio: FolioRef<'_>,
        window: RaWindow,
    ) -> Self {
        Self::new(cache, Reason::ReadAround(window)).keeping(folio)
    }

    /// A window is to be read ahead.
    pub(crate) fn ahead(cache: &Arc<PageCache>, window: RaWindow) -> Self {
        Self::new(cache, Reason::Ahead(window))
    }

    /// The folio is locked by another thread.
    pub(crate) fn folio(cache: &Arc<PageCache>, folio: FolioRef<'_>) -> Self {
        let reason = match folio.is(flag::UPTODATE) {
            true => Reason::Busy,
            false => Reason::Folio,
        };
        Self::new(cache, reason).keeping(folio)
    }

    /// The folio is being read by a request that the fault has begun; it may have arrived already.
    pub(crate) fn begun(cache: &Arc<PageCache>, folio: FolioRef<'_>) -> Self {
        Self::new(cache, Reason::Folio).keeping(folio)
    }

    /// Pages of the folio are being written to the store, and one is to be read from there.
    pub(crate) fn writeback(cache: &Arc<PageCache>, folio: FolioRef<'_>) -> Self {
        Self::new(cache, Reason::Writeback).keeping(folio)
    }

    /// There is no memory. Private memory leaves some to files, and so needs more.
    pub(crate) fn memory(cache: &Arc<PageCache>, need: Need) -> Self {
        let need = match need {
            Need::Pages(pages) => Need::Pages(pages + cache.floor() as usize),
            need => need,
        };
        Self::new(cache, Reason::Memory(need))
    }

    /// A page table is being zapped.
    pub(crate) fn table(cache: &Arc<PageCache>, addr: usize) -> Self {
        Self::new(cache, Reason::Table(addr))
    }

    /// The store may have no room for the page at `addr`.
    pub(crate) fn reserve(cache: &Arc<PageCache>, addr: usize) -> Self {
        Self::new(cache, Reason::Reserve(addr))
    }

    /// The page at `addr` is past the end, as far as is known; or it is being taken out of the store.
    pub(crate) fn length(cache: &Arc<PageCache>, addr: usize) -> Self {
        Self::new(cache, Reason::Length(addr))
    }

    /// There is no memory for a page of anonymous memory.
    pub(crate) fn anonymous_memory(anon: &Arc<Anonymous>) -> Self {
        Self::of(anon, Reason::Memory(Need::Pages(FAULT_PAGES)))
    }

    /// A page table of anonymous memory is being zapped.
    pub(crate) fn anonymous_table(anon: &Arc<Anonymous>, addr: usize) -> Self {
        Self::of(anon, Reason::Table(addr))
    }

    /// Another fault fills the page.
    pub(crate) fn anonymous_page(anon: &Arc<Anonymous>, addr: usize) -> Self {
        Self::of(anon, Reason::Page(anon.page(addr)))
    }

    fn of(anon: &Arc<Anonymous>, reason: Reason) -> Self {
        Self {
            owner: Owner::Anonymous(anon.clone()),
            reason,
            folio: NO_FOLIO,
        }
    }

    fn new(cache: &Arc<PageCache>, reason: Reason) -> Self {
        Self {
            owner: Owner::File(cache.clone()),
            reason,
            folio: NO_FOLIO,
        }
    }

    /// Keeps `folio`, which needs no wait, in the cache meanwhile.
    pub(crate) fn keeping(mut self, folio: FolioRef<'_>) -> Self {
        debug_assert_eq!(self.folio, NO_FOLIO);
        self.folio = folio.leak().id();
        self
    }

    /// For a wait for memory: drops the folio of `keeping`, which reclaim
    /// could not take.
    pub(crate) fn let_go(&mut self) {
        if let Reason::Memory(need) = self.reason
            && need != Need::Clean
            && self.folio != NO_FOLIO
        {
            self.node().put(self.node().folios.get(self.folio));
            self.folio = NO_FOLIO;
        }
    }

    /// The node whose folio or memory is waited for.
    pub(crate) fn node(&self) -> &Node {
        match &self.owner {
            Owner::File(cache) => &cache.node,
            Owner::Anonymous(anon) => &anon.node,
        }
    }

    /// Counts that the lock was dropped for this.
    pub(crate) fn count_lock_drop(&self) {
        match &self.owner {
            Owner::File(cache) => cache.retry_mmap_drop().add(1),
            Owner::Anonymous(anon) => anon.node.stats.retry_mmap_drop.add(1),
        }
    }

    /// The page cache of the file, or the private memory, whose folio this is for.
    pub(crate) fn file(&self) -> &Arc<PageCache> {
        self.cache()
    }

    /// The folio that it is for.
    pub(crate) fn held(&self) -> &Folio {
        self.node().folios.get(self.folio)
    }

    fn cache(&self) -> &Arc<PageCache> {
        match &self.owner {
            Owner::File(cache) => cache,
            Owner::Anonymous(_) => unreachable!("anonymous memory has no folios"),
        }
    }

    /// True if this is a wait for memory.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.reason, Reason::Memory(_))
    }

    /// True if this is for memory that will not come, after `short_ns` in which only
    /// memory was waited for, and `standstill` trailing waits in which no thread freed
    /// memory; waits during which a limit was lowered are in neither. A moment without any folio proves nothing: a thread that has yet to
    /// take one has paid for it.
    ///
    /// *Private memory*, and dirty pages of a file that cannot be written back, may fill the budget with pages that cannot be evicted: without swap,
    /// or where it is full or fails. So a fault on it ends, and does not hang, also where
    /// others go on.
    ///
    /// *A page of a file* finds room at last: pages that cannot be evicted leave
    /// [`FLOOR`]. It may wait for reads under way, which take as long as the device does.
    /// Where there are none, the system itself has no memory.
    pub(crate) fn must_fail(&self, standstill: u32, short_ns: u64) -> bool {
        let Reason::Memory(_) = self.reason else {
            return false;
        };
        let node = self.node();
        let is_private = match &self.owner {
            Owner::Anonymous(_) => true,
            Owner::File(cache) => cache.is_private(),
        };
        match is_private || self.reason == Reason::Memory(Need::Clean) {
            true => standstill >= STANDSTILL || short_ns >= LONGEST_NS,
            false => standstill >= STANDSTILL && node.frames_in_use() == 0,
        }
    }

    /// True if the folio is the caller's to read, alone.
    pub(crate) fn is_own_read(&self) -> bool {
        self.reason == Reason::Read
    }

    /// Notes that the store does not have at hand what the caller is to read.
    pub(crate) fn set_missing(&mut self) {
        debug_assert!(self.is_own_read());
        self.reason = Reason::ReadMissing;
    }

    /// True if the caller holds the folio lock and has not begun the folio's read.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(
            self.reason,
            Reason::Read | Reason::ReadMissing | Reason::ReadAround(_)
        )
    }

    /// For a wait for memory: makes room, where that takes no I/O. True if the caller is to look again.
    pub(crate) fn makes_room(&self) -> bool {
        let (Reason::Memory(need), node) = (self.reason, self.node()) else {
            return false;
        };
        let takes_io = node.dirty_pages() > 0 || node.anonymous_pages() > 0;
        // The thread may have begun reads, whose folios are locked. Nor does it make room in other members of a shared budget: that may take I/O.
        !takes_io && !node.reclaims_from_members(need) && node.make_room_with_folios(need)
    }

    /// True if this is for the length of a file, whose lock comes before those of the space: its holder may want `mmap_lock`.
    pub(crate) fn is_for_length(&self) -> bool {
        matches!(self.reason, Reason::Length(_))
    }

    /// True if this is a wait for I/O.
    pub fn is_io(&self) -> bool {
        matches!(
            self.reason,
            Reason::Read | Reason::ReadMissing | Reason::ReadAround(_) | Reason::Folio
        )
    }

    /// True if the folio was read since, well or not. One that was given up
    /// unread, because the store could not take the read, was not.
    pub(crate) fn has_read(&self) -> bool {
        self.is_io()
            && self.node().folios.get(self.folio).state() & (flag::UPTODATE | flag::ERROR) != 0
    }

    /// Waits.
    pub fn wait(&self, interrupt: &dyn Interrupt) -> Waited {
        let node = self.node();
        match self.reason {
            Reason::Read => {
                read::demand(self.cache(), node.folios.get(self.folio));
                Waited::Ready
            }
            Reason::ReadMissing => {
                read::demand_missing(self.cache(), node.folios.get(self.folio));
                Waited::Ready
            }
            Reason::ReadAround(window) => {
                let folio = node.folios.get(self.folio);
                match baseline::read(self.cache(), folio, &window, interrupt) {
                    true => Waited::Ready,
                    false => Waited::Interrupted,
                }
            }
            Reason::Ahead(window) => {
                baseline::begin(self.cache(), &window);
                Waited::Ready
            }
            Reason::Folio | Reason::Busy => {
                let before = node.clock.now_ns();
                let done = unlocked(self.cache(), node.folios.get(self.folio), interrupt);
                node.stats.folio_waits.record(node.clock.now_ns() - before);
                match done {
                    true => Waited::Ready,
                    false => Waited::Interrupted,
                }
            }
            Reason::Writeback => {
                match node.wait_for_writeback(node.folios.get(self.folio), interrupt) {
                    true => Waited::Ready,
                    false => Waited::Interrupted,
                }
            }
            Reason::Memory(need) => {
                node.stats.memory_waits.add(1);
                let subscription = node.budget.subscribe();
                // Completed reads without a waiter: reclaim can
                // take them once they are delivered.
                if let Owner::File(cache) = &self.owner {
                    cache.store.reap(NO_COOKIE, &Completion(node), 0);
                }
                let waited = if node.make_room(need) {
                    Waited::Ready
                } else if subscription.wait(SLICE_NS) {
                    Waited::NoRoom
                } else {
                    Waited::Standstill
                };
                match interrupt.pending() {
                    true => Waited::Interrupted,
                    false => waited,
                }
            }
            Reason::Table(addr) => {
                let window = match &self.owner {
                    Owner::File(cache) => &cache.window,
                    Owner::Anonymous(anon) => &anon.window,
                };
                window.wait_zapped(addr, SLICE_NS);
                ready_unless(interrupt)
            }
            Reason::Reserve(addr) => {
                let cache = self.cache();
                let writes = cache.writes.as_ref().expect("it is written to");
                match writes.to().reserve(cache.offset(addr)) {
                    Ok(()) => ready_unless(interrupt),
                    Err(error) => Waited::Failed(error.of_write()),
                }
            }
            Reason::Length(addr) => match self.cache().follow_length(addr) {
                Ok(()) => ready_unless(interrupt),
                Err(error) => Waited::Failed(error),
            },
            Reason::Page(page) => {
                if let Owner::Anonymous(anon) = &self.owner {
                    anon.pages.wait_unlocked(page, SLICE_NS);
                }
                ready_unless(interrupt)
            }
        }
    }
}

fn ready_unless(interrupt: &dyn Interrupt) -> Waited {
    match interrupt.pending() {
        true => Waited::Interrupted,
        false => Waited::Ready,
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if self.folio != NO_FOLIO {
            let node = self.node();
            node.put(node.folios.get(self.folio));
        }
    }
}
