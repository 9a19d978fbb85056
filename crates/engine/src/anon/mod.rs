//! Private memory: zeros, or the bytes of a file, until written; of one address
//! space.
//!
//! ```text
//!   Anonymous ── node    its budget pays
//!      │      ── window  the addresses of the pages, and the page tables under them
//!      │      ── pages   the state of each page (`pages`, `state`)
//!      │      ── swap_cache  folios that are being read back, or were read ahead
//!      └── keep_state   whether pages of it may stay (`keep`)
//! ```
//!
//! The window's addresses name the pages; a VMA shows them wherever it is, by
//! its `pgoff`. So a mapping moves without its pages ([`mremap`]), and a forked
//! space shows a window of its own at the same address ([`fork`]).
//!
//! A page's way:
//!
//! ```text
//!   absent ──read───► zero ──write──► dirty ──evicted──► swapped ──read──► clean
//!      └─────write──────────────────────▲  ▲                └─────write──┐  │
//!                                       │  └──────────────write──────────│──┘
//!                                       └────────────────────────────────┘
//! ```
//!
//! Clean pages are write-protected: a write to one ends in a fault, which gives its slot up.
//! So a page that was not written to since it was read is dropped without a write.
//!
//! Mutual exclusion, for one page:
//!
//! | | fault | reclaim | unmap | fork |
//! |---|---|---|---|---|
//! | **fault** | page lock; folio lock while it is read | page lock | VMA lock | VMA lock |
//! | **reclaim** | | page lock | page lock | page lock |
//! | **unmap** | | | `mmap_lock` | `mmap_lock` |
//!
//! [`mremap`]: crate::mm::AddressSpace::mremap
//! [`fork`]: crate::mm::AddressSpace::fork

use crate::budget::FLOOR;
use crate::cache::window::{TABLE_PAGES, Window};
use crate::cache::{MapError, Node, OnTruncate};
use crate::mmu::gather::Gathered;
use crate::mmu::{MmuError, Reservation};
use crate::page::Protection;
use crate::reclaim::windows::Place;
use crate::{PAGE_SHIFT, PAGE_SIZE};
use core::ops::Range;
use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod adopt;
mod advise;
mod fork;
pub(crate) mod habits;
mod inspect;
mod keep;
mod move_to;
pub mod pages;
mod remove;
mod restrict;
pub mod state;
mod swap_cache;
mod view;

use habits::FirstWrites;
pub(crate) use habits::Habits;
use keep::KeepState;
use pages::Pages;
pub use state::PageState;
use swap_cache::SwapCache;
pub use view::PrivateFile;
pub(crate) use view::{NotRead, View};

/// Pages that must be free for a fault: the page, the page of words that it is in,
/// the pages of a page table, and the floor that private memory leaves free.
pub(crate) const FAULT_PAGES: usize = 2 + (TABLE_PAGES + FLOOR) as usize;

/// Why pages were not shown in another window as well, or instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotShown {
    /// The budget has no room for them, or for tables and words of the new window, and
    /// nothing can be evicted.
    Budget,
    /// The page tables refuse.
    Mmu(MmuError),
}

impl From<MapError> for NotShown {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Mmu(error) => Self::Mmu(error),
            MapError::Budget(_) => Self::Budget,
        }
    }
}

/// The number of no space.
const NO_SPACE: u64 = 0;

/// Memory that begins as zeros, or as a file does. It belongs to the first address
/// space that maps it, which shows each page at one address at most. Pages that no VMA
/// shows any more have been given back.
///
/// Resident pages are charged to the node's budget, but for zeros that nobody has
/// written to. Where the node has swap they can be evicted; where it has not, only
/// those that are still as their file has them, or zeros. A fork charges the copy
/// of every resident page at once, whether it is ever written or not.
pub struct Anonymous {
    /// Immutable.
    pub(crate) node: Arc<Node>,
    /// Immutable; its words are atomics.
    pub(crate) window: Arc<Window>,
    /// Immutable; its words are atomics.
    pub(crate) pages: Arc<Pages>,
    /// Folios read from swap or from the file; `None` where there is neither.
    pub(crate) swap_cache: Option<SwapCache>,
    /// The space that maps it, or [`NO_SPACE`]. Set once.
    space: AtomicU64,
    /// All of the window was zapped by one call, and nobody has mapped it since. Written under `mmap_lock` for write.
    is_zapped: AtomicBool,
    keep_state: KeepState,
    /// Of small memory, the first writes.
    pub(crate) first_writes: FirstWrites,
    /// Among the windows that reclaim goes over; protected by their lock.
    pub(crate) place: Place,
}

impl Anonymous {
    /// `bytes` of zeros, rounded up to whole pages, that `node` pays for as
    /// they are touched. Costs address space, and its upper page tables.
    pub fn new(node: Arc<Node>, bytes: usize) -> Result<Arc<Self>, MapError> {
        Self::make(node, bytes, None, OnTruncate::Error)
    }

    /// `bytes` of a file's, rounded up to whole pages, that nobody else sees when
    /// they are written to. A touch past the end of a file that has become shorter
    /// ends as `on_truncate` says.
    pub fn of_file(
        node: Arc<Node>,
        bytes: usize,
        private_file: PrivateFile,
        on_truncate: OnTruncate,
    ) -> Result<Arc<Self>, MapError> {
        Self::make(node, bytes, Some(private_file), on_truncate)
    }

    fn make(
        node: Arc<Node>,
        bytes: usize,
        private_file: Option<PrivateFile>,
        on_truncate: OnTruncate,
    ) -> Result<Arc<Self>, MapError> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_SIZE);
        let bytes = bytes.ok_or(MmuError::NoMemory)?;
        let reservation = node.mmu.reserve(bytes, Protection::ReadWrite)?;
        Self::at(node, reservation, private_file, on_truncate)
    }

    /// `reservation.bytes` of zeros, over address space that is the page tables' already. After an error it is released.
    pub fn reserved(node: Arc<Node>, reservation: Reservation) -> Result<Arc<Self>, MapError> {
        Self::at(node, reservation, None, OnTruncate::Error)
    }

    fn at(
        node: Arc<Node>,
        reservation: Reservation,
        private_file: Option<PrivateFile>,
        on_truncate: OnTruncate,
    ) -> Result<Arc<Self>, MapError> {
        let bytes = reservation.bytes;
        let Some(pages) = Pages::new(bytes >> PAGE_SHIFT) else {
            node.mmu.release(reservation);
            return Err(MmuError::NoMemory.into());
        };
        Self::over(
            node,
            reservation,
            Arc::new(pages),
            private_file,
            on_truncate,
        )
    }

    /// An empty window of so many bytes, whose untouched pages are as this one's.
    fn empty(&self, bytes: usize) -> Result<Arc<Self>, MapError> {
        let private_file = self.private_file().map(|private_file| PrivateFile {
            store: private_file.store.clone(),
            offset: private_file.offset,
        });
        Self::make(self.node.clone(), bytes, private_file, self.on_truncate())
    }

    /// Over a window that has no pages, and words that are its own.
    fn over(
        node: Arc<Node>,
        reservation: Reservation,
        pages: Arc<Pages>,
        private_file: Option<PrivateFile>,
        on_truncate: OnTruncate,
    ) -> Result<Arc<Self>, MapError> {
        let window = Window::new(reservation.clone()).ok_or(MmuError::NoMemory.into());
        let held = window.and_then(|window| {
            node.hold(window.table_pages())?;
            Ok(window)
        });
        let window = match held {
            Ok(window) => window,
            Err(error) => {
                node.mmu.release(reservation);
                return Err(error);
            }
        };
        let window = Arc::new(window);
        // Where writes cannot be seen, nothing that may be written can be evicted.
        let evicts = node.mmu.can_protect();
        let swap = node.swap.clone().filter(|_| evicts);
        let swap_cache = (swap.is_some() || private_file.is_some()).then(|| {
            let view = View {
                pages: pages.clone(),
                swap,
                private_file,
            };
            SwapCache::new(node.clone(), view, window.clone(), on_truncate)
        });
        let anon = Arc::new(Self {
            node,
            window,
            pages,
            swap_cache,
            space: AtomicU64::new(NO_SPACE),
            is_zapped: AtomicBool::new(false),
            keep_state: KeepState::default(),
            first_writes: FirstWrites::default(),
            place: Place::default(),
        });
        if anon.evicts() {
            anon.node.private.windows.register(&anon);
        }
        Ok(anon)
    }

    /// The node that pays.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The window's addresses. Where userfaultfd serves it, those of its memory
    /// too.
    pub fn addresses(&self) -> Range<usize> {
        self.window.reservation().range()
    }

    /// The window, as the page tables know it.
    pub fn reservation(&self) -> &Reservation {
        self.window.reservation()
    }

    /// Where untouched pages come from; `None`: from nowhere, they are zeros.
    pub fn private_file(&self) -> Option<&PrivateFile> {
        self.swap_cache.as_ref()?.private_file()
    }

    /// The result of touches of a truncated file's pages.
    pub fn on_truncate(&self) -> OnTruncate {
        let cache = self.swap_cache.as_ref();
        cache.map_or_else(OnTruncate::default, SwapCache::on_truncate)
    }

    /// True if `anon` is the only reference, and nobody waits for one of its pages.
    /// The end of a mapping waits for this, so that the last reference is not
    /// dropped in a fault handler.
    pub fn is_unused(anon: &Arc<Self>) -> bool {
        let cache = anon.swap_cache.as_ref();
        Arc::strong_count(anon) == 1 && cache.is_none_or(SwapCache::is_unused)
    }

    /// True if its pages may be evicted.
    fn evicts(&self) -> bool {
        self.swap_cache.is_some() && self.node.mmu.can_protect()
    }

    /// Number of the page that is at `addr` in the window.
    #[inline]
    pub(crate) fn page(&self, addr: usize) -> usize {
        (addr - self.window.reservation().addr) >> PAGE_SHIFT
    }

    /// The pages of a range of the window's addresses.
    pub(crate) fn page_range(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.window.reservation().addr;
        (range.start - start) >> PAGE_SHIFT..(range.end - start).div_ceil(PAGE_SIZE)
    }

    /// Gives a page's slot up.
    pub(crate) fn put_slot(&self, slot: Option<u32>) {
        if let (Some(slot), Some(swap)) = (slot, &self.node.swap) {
            swap.put(slot);
        }
    }

    /// Removes a page's folio, read or being read, from the cache. The caller
    /// has locked the page, which keeps others from reading it.
    pub(crate) fn forget_read(&self, page: usize) {
        // The check for no folio at all is a read-modify-write, there: a thread that puts
        // one in later sees that the page is locked.
        if let Some(cache) = &self.swap_cache {
            let addr = self.window.address(page as u64, 0);
            cache.forget(addr..addr + PAGE_SIZE);
        }
    }

    /// True if a page was read from a file, or is being read. The caller has locked the page, so that nobody begins to now.
    pub(crate) fn is_read_of_file(&self, page: usize) -> bool {
        // Both looks have the lock of the bucket: a folio that is put in after this one sees the page's lock.
        let cache = self
            .swap_cache
            .as_ref()
            .filter(|_| self.private_file().is_some());
        cache.is_some_and(|cache| cache.is_read(page))
    }

    /// Makes `space` the one that maps it: true the first time.
    ///
    /// # Panics
    /// If another has mapped it before.
    pub(crate) fn claim(&self, space: u64) -> bool {
        // Relaxed, as in `zapped`.
        self.is_zapped.store(false, Ordering::Relaxed);
        // Relaxed: only compared; `mmap_lock` of the space orders the rest.
        let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.space.compare_exchange(NO_SPACE, space, set, failed) {
            Ok(_) => true,
            Err(owner) => {
                assert!(owner == space, "anonymous memory of space {owner}");
                false
            }
        }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        if self.evicts() {
            // Reclaim does not come here any more.
            self.node.private.windows.deregister(self);
        }
        if let Some(written) = self.first_writes.known() {
            self.node.habits.look(self.pages.count(), written);
        }
        // Pages that are still there were never mapped (a fork that failed), or their
        // space was not emptied by the verbs.
        let all = self.addresses();
        if let Some(out) = self.count_out(all) {
            self.node.mmu.zap(core::slice::from_ref(&out.zap));
            self.zapped(&out, false);
        }
        if let Some(cache) = self.swap_cache.take() {
            // Before its addresses are another's.
            cache.forget_all();
        }
        let budget = &self.node.budget;
        self.pages.uncharge(budget);
        let window = self.window.reservation().clone();
        match self.is_zapped.load(Ordering::Relaxed) {
            true => self.node.mmu.release_zapped(window),
            false => self.node.mmu.release(window),
        }
        self.node.let_go(self.window.table_pages());
    }
}
