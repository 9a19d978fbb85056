//! Private memory as a VMA shows it, and a fault on it.
//!
//! ```text
//!   resident ── read ─────────────────────────────────────► Mapped (somebody was faster)
//!      └─ write: lock the page, ask for memory if it is
//!         zeros, make it writable, give its slot up ──────► Mapped
//!   absent ── read: zeros without memory ─────────────────► Mapped
//!      └─ write: a page of zeros ─────────────────────────► Mapped
//!   swapped, or absent and in a file ── file::fault, with a cache of its own
//! ```

use super::{Fault, FaultFlags, Wait, file, mmu_error};
use crate::anon::habits::LARGEST;
use crate::anon::pages::{Found, PageLock};
use crate::anon::{Anonymous, NotShown};
use crate::budget::FLOOR;
use crate::cache::window::CountResult;
use crate::mm::backing::{SoftPage, VmFault, VmOps};
use crate::mm::{Backing, ForkError, MmError, MoveError};
use crate::mmu::gather::MmuGather;
use crate::mmu::{Mmu, MmuError, Zeroed};
use crate::page::Advice;
use crate::{PAGE_SHIFT, PAGE_SIZE};
use core::fmt;
use core::ops::Range;
use run::{Run, Shown};
use sync::Arc;

mod advise;
mod hand_over;
pub(super) mod install;
mod run;
mod vanished;

pub use hand_over::{HandOverFn, NotHandedOver, hand_over};

/// Private memory of one address space.
pub struct AnonVmOps(Arc<Anonymous>);

impl AnonVmOps {
    fn address(&self, pgoff: u64, distance: usize) -> usize {
        self.0.window.address(pgoff, distance)
    }
}

impl VmOps for AnonVmOps {
    fn object(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    fn fault(&self, fault: &VmFault<'_, '_>) -> Fault {
        let addr = self.address(fault.attributes.pgoff, fault.distance());
        let vma = fault.vma.vma();
        let is_first = fault.attributes.pgoff == 0;
        let shown = Shown {
            behind: (vma.end() - fault.addr.in_space() - 1) >> PAGE_SHIFT,
            is_whole: is_first && vma.end() - vma.start() == self.0.addresses().len(),
        };
        self::fault(&self.0, addr, shown, fault.attributes.advice, fault.flags)
    }

    fn is_present(&self, pgoff: u64, distance: usize, write: bool) -> bool {
        let page = self.0.page(self.address(pgoff, distance));
        let state = self.0.pages.unlocked_state(page);
        state.is_some_and(|state| state.is_resident() && !(write && state.is_clean()))
    }

    fn soft_page(&self, pgoff: u64, distance: usize) -> SoftPage {
        let addr = self.address(pgoff, distance);
        let is_missing = !self.0.is_resident(addr);
        SoftPage::Window { addr, is_missing }
    }

    fn pages(&self) -> Option<Range<u64>> {
        Some(0..(self.0.addresses().len() >> PAGE_SHIFT) as u64)
    }

    fn mmu(&self) -> Option<&Arc<dyn Mmu>> {
        Some(&self.0.node.mmu)
    }

    fn claim(&self, space: u64) -> bool {
        self.0.claim(space)
    }

    fn fork(&self) -> Result<Option<Backing>, ForkError> {
        Ok(Some(self.0.fork()?.into()))
    }

    fn is_frozen_by_fork(&self) -> bool {
        true
    }

    fn move_to(&self, to: &Backing) -> Result<(), MoveError> {
        let to = Anonymous::shown(to).ok_or(MmError::NotAnonymous)?;
        Ok(self.0.move_to(to)?)
    }

    /// Where the window is: its addresses are nobody else's until it has been zapped and released.
    fn is_alone(&self, pgoff: u64, range: &Range<usize>) -> bool {
        pgoff == 0 && *range == self.0.addresses()
    }

    fn removed(&self, pgoff: u64, bytes: usize, gather: &mut MmuGather) -> bool {
        self.0.remove(pgoff, bytes, gather);
        true
    }

    fn handed_over(&self, pgoff: u64, bytes: usize) {
        self.0.leave_behind(pgoff, bytes);
    }
}

impl From<NotShown> for ForkError {
    fn from(error: NotShown) -> Self {
        match error {
            NotShown::Budget => Self::Budget,
            NotShown::Mmu(error) => Self::Mmu(error),
        }
    }
}

impl From<NotShown> for MoveError {
    fn from(error: NotShown) -> Self {
        match error {
            NotShown::Budget => Self::Budget,
            NotShown::Mmu(error) => Self::Mmu(error),
        }
    }
}

impl From<Arc<Anonymous>> for Backing {
    fn from(anon: Arc<Anonymous>) -> Self {
        Self::new(AnonVmOps(anon))
    }
}

impl Anonymous {
    /// The private memory that a VMA shows, if it is that.
    pub fn shown(backing: &Backing) -> Option<&Arc<Self>> {
        backing.of::<AnonVmOps>().map(|ops| &ops.0)
    }
}

impl fmt::Debug for AnonVmOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Anonymous({:#x?})", self.0.addresses())
    }
}

/// Serves a fault at `addr` of the window, around which the VMA shows so much.
fn fault(
    anon: &Arc<Anonymous>,
    addr: usize,
    shown: Shown,
    advice: Advice,
    flags: FaultFlags,
) -> Fault {
    let addr = addr & !(PAGE_SIZE - 1);
    let page = anon.page(addr);
    let state = match anon.pages.find(page, &anon.node.budget) {
        Found::State(state) => state,
        Found::Locked => return Fault::Retry(Wait::anonymous_page(anon, addr)),
        Found::NoMemory => return Fault::Retry(Wait::anonymous_memory(anon)),
    };
    if vanished::must_check_page_tables(anon, addr, state, flags.write) {
        return vanished::fault(anon, addr, state);
    }
    if state.is_resident() && !flags.write {
        anon.node.stats.spurious.add(1);
        return Fault::Mapped;
    }
    if state.is_swapped() {
        return read_back(anon, addr, advice, flags);
    }
    if state.is_absent() {
        let cache = anon.swap_cache.as_ref();
        match cache.map_or(Ok(false), |cache| cache.is_of_file(page)) {
            Ok(true) => return read_back(anon, addr, advice, flags),
            Ok(false) => {}
            Err(error) => return Fault::Error(error.into()),
        }
    }
    // A thread that changes a page, or makes one, has it locked.
    match anon.pages.try_lock(page, state) {
        None => Fault::Again,
        // A thread began to read it from the file a moment ago: with the page locked, no other does.
        Some(_) if state.is_absent() && anon.is_read_of_file(page) => Fault::Again,
        Some(lock) if state.is_resident() => write(anon, addr, lock),
        Some(lock) if flags.write => fill(anon, addr, lock, Run::with(anon, page, shown, advice)),
        Some(lock) => show_zeros(anon, addr, lock),
    }
}

/// The page is in swap or in a file: as a fault on a file is served.
fn read_back(anon: &Arc<Anonymous>, addr: usize, advice: Advice, flags: FaultFlags) -> Fault {
    let cache = anon.swap_cache.as_ref().expect("a page was swapped out");
    file::fault(cache.cache(), addr, advice, flags)
}

/// A write to a page that is there, and locked: protected since it came, by
/// reclaim, by a fork, or not at all, if somebody's fault was faster.
fn write(anon: &Arc<Anonymous>, addr: usize, mut page: PageLock<'_>) -> Fault {
    let node = &anon.node;
    let state = page.state();
    if state.is_zero() && !node.budget.try_charge(1, FLOOR) {
        return Fault::Retry(Wait::anonymous_memory(anon));
    }
    // Reclaim protects a page before it looks at its bytes, with the page locked:
    // it does not miss writes from here on.
    if let Err(error) = node.mmu.make_writable(anon.window.reservation(), addr) {
        node.budget.uncharge(state.is_zero().into());
        return Fault::Error(mmu_error(error));
    }
    if state.is_zero() {
        node.stats.anonymous_faults.add(1);
    } else if let Some(swap) = &node.swap {
        swap.stats.write_faults.add(1);
    }
    if state.is_clean() {
        anon.put_slot(page.slot());
        page.set_slot(None);
        page.set(state.to_dirty());
    }
    Fault::Mapped
}

/// A write to a page that is absent and locked: memory for it, and for those of its run.
fn fill(anon: &Arc<Anonymous>, addr: usize, mut page: PageLock<'_>, mut run: Run<'_>) -> Fault {
    let node = &anon.node;
    // After any refusal the pages are unlocked as they were, absent.
    while let Err(wait) = make_room(anon, addr, 1 + run.pages()) {
        if run.pages() == 0 {
            return Fault::Retry(wait);
        }
        // Memory is short, or the table is zapped: the page that was touched is enough.
        run.give_up();
    }
    let (number, pages) = (anon.page(addr), run.pages());
    let first = run.around(number);
    let mut refused = fill_range(anon, &mut run, first).err();
    let filled = refused.is_none_or(|(first, _)| first > number);
    if filled {
        page.set(page.state().to_dirty());
        node.stats.anonymous_faults.add(1);
        if anon.pages.count() <= LARGEST {
            anon.first_writes.note(number);
        }
    }
    while refused.is_none()
        && let Some(range) = run.next()
    {
        refused = fill_range(anon, &mut run, range).err();
    }
    let ahead = (pages - run.pages()) as u64;
    if ahead > 0 {
        node.stats.filled_ahead.add(ahead);
        node.private.charged(ahead);
    }
    if run.pages() > 0 {
        // They are filled when they are touched, or the touch is told.
        give_back(anon, addr, run.pages());
    }
    match refused {
        Some((_, error)) if !filled => unfilled(anon, addr, 1, error),
        _ => Fault::Mapped,
    }
}

/// Memory for pages that are neighbours, locked and paid for; those of the run are unlocked with it. The first page that got none,
/// and why.
fn fill_range(
    anon: &Anonymous,
    run: &mut Run<'_>,
    pages: Range<usize>,
) -> Result<(), (usize, MmuError)> {
    let window = anon.window.reservation();
    let fill = |pages: Range<usize>| {
        let addr = anon.window.address(pages.start as u64, 0);
        (anon.node.mmu).fill(window, addr, pages.len() * PAGE_SIZE)
    };
    if fill(pages.clone()).is_ok() {
        run.filled(pages);
        return Ok(());
    }
    // The first of them may have memory by now, and others have written to it: it stays. Page by page each has it or has not.
    for page in pages {
        fill(page..page + 1).map_err(|error| (page, error))?;
        run.filled(page..page + 1);
    }
    Ok(())
}

/// So many pages of a run get no memory, beside the one at `addr`, which was touched.
fn give_back(anon: &Anonymous, addr: usize, pages: usize) {
    let table = anon.window.leave(addr, pages);
    debug_assert!(table.is_none(), "the page that was touched is counted");
    anon.node.budget.uncharge(pages as u64);
}

/// A read of a page that is absent and locked: zeros that cost no memory, if there are any.
fn show_zeros(anon: &Arc<Anonymous>, addr: usize, mut page: PageLock<'_>) -> Fault {
    let node = &anon.node;
    if let Err(wait) = make_room(anon, addr, 1) {
        return Fault::Retry(wait);
    }
    match node.mmu.zero_page(anon.window.reservation(), addr) {
        Ok(Zeroed::Memory) => {
            page.set(page.state().to_dirty());
            node.stats.anonymous_faults.add(1);
        }
        Ok(Zeroed::Nothing) => {
            page.set(page.state().to_zero());
            node.stats.zero_pages.add(1);
            node.budget.uncharge(1);
        }
        Err(error) => return unfilled(anon, addr, 1, error),
    }
    Fault::Mapped
}

/// Pays for pages of one page table, and counts them in.
fn make_room(anon: &Arc<Anonymous>, addr: usize, pages: usize) -> Result<(), Wait> {
    let budget = &anon.node.budget;
    if !budget.try_charge(pages as u64, FLOOR) {
        return Err(Wait::anonymous_memory(anon));
    }
    let refused = match anon.window.enter(addr, pages, budget, FLOOR) {
        CountResult::Counted => return Ok(()),
        refused => refused,
    };
    budget.uncharge(pages as u64);
    Err(match refused {
        CountResult::Zapping => Wait::anonymous_table(anon, addr),
        _ => Wait::anonymous_memory(anon),
    })
}

/// Undoes `make_room`.
fn unfilled(anon: &Arc<Anonymous>, addr: usize, pages: usize, error: MmuError) -> Fault {
    let node = &anon.node;
    (anon.window).leave_and_zap(addr, pages, &*node.mmu, &node.budget);
    node.budget.uncharge(pages as u64);
    Fault::Error(mmu_error(error))
}
