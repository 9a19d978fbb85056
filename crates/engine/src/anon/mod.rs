//! Anonymous memory: zeros until written, of one address space.
//!
//! ```text
//!   Anonymous ── node    who pays
//!      │      ── window  where the pages are, and the page tables under them
//!      └──────── pages   what each page is (`pages`)
//! ```
//!
//! The window's addresses name the pages; a VMA shows them wherever it is, by
//! its `pgoff`. So a mapping moves without its pages ([`mremap`]), and a forked
//! space shows a window of its own at the same address ([`fork`]).
//!
//! Who excludes whom, for one page:
//!
//! | | fault | unmap | fork |
//! |---|---|---|---|
//! | **fault** | page lock | VMA lock | VMA lock |
//! | **unmap** | | `mmap_lock` | `mmap_lock` |
//!
//! A page that is resident stays until it is unmapped: it cannot be evicted.
//!
//! [`mremap`]: crate::mm::AddressSpace::mremap
//! [`fork`]: crate::mm::AddressSpace::fork

use crate::cache::Node;
use crate::cache::window::{TABLE_PAGES, Window};
use crate::mm::Protection;
use crate::mmu::MmuError;
use crate::{PAGE_SHIFT, PAGE_SIZE};
use core::ops::Range;
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

mod fork;
pub mod pages;
mod remove;

pub use fork::ForkError;
use pages::Pages;
pub(crate) use remove::Removal;

/// Pages that a fault may have to pay for: the page, its page table, the page
/// of words that it is in, and what comes with a page of the window's table.
pub(crate) const FAULT_PAGES: usize = 3 + TABLE_PAGES as usize;

/// The number of no space.
const NO_SPACE: u64 = 0;

/// Memory that begins as zeros. It belongs to the first address space that maps
/// it, which shows each page at one address at most. What no VMA shows any more
/// has been given back.
///
/// Every resident page is charged to the node's budget, and stays. A fork
/// charges the copy of every resident page at once, whether it is ever written
/// or not: it fails where there is no room, and then no later write does.
pub struct Anonymous {
    /// Immutable.
    pub(crate) node: Arc<Node>,
    /// Immutable; its words are atomics.
    pub(crate) window: Window,
    /// Immutable; its words are atomics.
    pub(crate) pages: Pages,
    /// The space that maps it, or [`NO_SPACE`]. Set once.
    space: AtomicU64,
}

impl Anonymous {
    /// `bytes` of zeros, rounded up to whole pages, that `node` pays for as
    /// they are touched. Costs address space only.
    pub fn new(node: Arc<Node>, bytes: usize) -> Result<Arc<Self>, MmuError> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_SIZE);
        let bytes = bytes.ok_or(MmuError::NoMemory)?;
        let reservation = node.mmu.reserve(bytes, Protection::ReadWrite)?;
        let parts = Window::new(reservation.clone()).zip(Pages::new(bytes >> PAGE_SHIFT));
        let Some((window, pages)) = parts else {
            node.mmu.release(reservation);
            return Err(MmuError::NoMemory);
        };
        node.anonymous.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Self {
            node,
            window,
            pages,
            space: AtomicU64::new(NO_SPACE),
        }))
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

    /// Pages that are resident, by counting. Exact while nobody changes it.
    pub fn resident_pages(&self) -> usize {
        let spans = self.window.spans(self.addresses());
        spans.map(|span| self.window.residents(span.start)).sum()
    }

    /// True if `addr`'s page is resident.
    pub fn is_resident(&self, addr: usize) -> bool {
        self.pages.is_resident(self.page(addr))
    }

    /// Number of the page that is at `addr` in the window.
    pub(crate) fn page(&self, addr: usize) -> usize {
        (addr - self.window.reservation().addr) >> PAGE_SHIFT
    }

    /// Makes `space` the one that maps it: true the first time.
    ///
    /// # Panics
    /// If another has mapped it before.
    pub(crate) fn claim(&self, space: u64) -> bool {
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
        // What is still there was never mapped (a fork that failed), or its
        // space was not emptied by the verbs.
        let all = self.addresses();
        if let Some(out) = self.count_out(all) {
            self.node.mmu.zap(core::slice::from_ref(&out.zap));
            self.zapped(&out);
        }
        let budget = &self.node.budget;
        self.window.uncharge_table(budget);
        self.pages.uncharge(budget);
        self.node.mmu.release(self.window.reservation().clone());
        self.node.anonymous.fetch_sub(1, Ordering::Relaxed);
    }
}
