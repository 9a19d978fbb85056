//! Mapping a folio that was read for private memory: its pages become the memory's own, and
//! the folio goes.

use crate::PAGE_SIZE;
use crate::anon::pages::PageLock;
use crate::anon::{PageState, View};
use crate::budget::FLOOR;
use crate::cache::PageCache;
use crate::cache::folio::{BLOCK_PAGES, Folio};
use crate::fault::file::map::{Refused, Touched};
use crate::mmu::Access;

/// Copies a folio into the window, protected, except for pages `touched` by a write.
/// The caller holds the folio lock, and discards the folio afterwards. Its frame is large: a fault on a file has no use for it on the
/// handler's stack.
#[inline(never)]
pub(in crate::fault) fn install(
    cache: &PageCache,
    view: &View,
    folio: &Folio,
    reserve: u64,
    touched: Option<Touched>,
) -> Result<(), Refused> {
    let node = &cache.node;
    let (addr, pages) = (folio.range().start, folio.pages());
    let first = cache.page(addr) as usize;
    // A folio that was read ahead may have words that nobody needed yet.
    let budget = &node.budget;
    if !view.pages.pay_for(first, budget) || !view.pages.pay_for(first + pages - 1, budget) {
        return Err(Refused::Memory);
    }
    // While they are locked, the slots that they were read from stay.
    let mut locks = [const { None }; BLOCK_PAGES];
    for (page, lock) in (first..).zip(&mut locks[..pages]) {
        let state = view.pages.unlocked_state(page).ok_or(Refused::Changed)?;
        assert!(!state.is_resident(), "page {page} is mapped and cached");
        *lock = Some(view.pages.try_lock(page, state).ok_or(Refused::Changed)?);
    }
    cache.enter(addr, pages, reserve.max(FLOOR))?;
    let touched = touched.map(|touched| {
        let lock = locks[cache.page(touched.addr) as usize - first].as_ref();
        Arrival::of(
            cache,
            touched,
            lock.expect("all of them are locked").state(),
        )
    });
    let written = touched.filter(|touched| touched.write);
    let alone = pages == 1 && written.is_some();
    // Where writes cannot be seen, everything counts as written.
    let protects = node.mmu.can_protect();
    let access = match protects && !alone {
        true => Access::ReadOnly,
        false => Access::Writable,
    };
    let window = cache.window.reservation();
    // SAFETY: the frames hold the folio's bytes; its range lies in the window.
    let mut mapped = unsafe { node.mmu.copy((window, addr), node.bytes_of(folio), access) };
    if let Some(written) = written.filter(|_| protects && !alone) {
        mapped = mapped.and_then(|()| node.mmu.make_writable(window, written.addr));
    }
    let mut there = pages;
    if let Err(error) = mapped {
        // A page that was protected has its bytes elsewhere.
        there = match protects {
            true => 0,
            false => already_there(cache, folio),
        };
        if there < pages {
            cache.leave(addr + there * PAGE_SIZE, pages - there);
            node.budget.uncharge((pages - there) as u64);
        }
        if there == 0 {
            return Err(Refused::Mmu(error));
        }
    }
    let mut from_swap = 0;
    for (page, lock) in (first..).zip(locks.iter_mut().flatten()).take(there) {
        from_swap += u64::from(lock.state().is_swapped());
        // A page that comes along with another proves nothing.
        let arrival = touched.filter(|touched| cache.page(touched.addr) as usize == page);
        enter(view, lock, arrival, protects);
    }
    node.private.charged(there as u64);
    if let Some(swap) = &view.swap {
        swap.stats.pages_in.add(from_swap);
    }
    Ok(())
}

/// How many pages are there of a folio that could not be mapped as a whole, where writes cannot be seen: the first of them may have been
/// written to, and stay. The others come with another fault.
#[cold]
fn already_there(cache: &PageCache, folio: &Folio) -> usize {
    let (node, range) = (&cache.node, folio.range());
    let (window, bytes) = (
        cache.window.reservation(),
        node.bytes_of(folio).cast::<u8>(),
    );
    let is_there = |&addr: &usize| {
        let from = bytes.wrapping_add(addr - range.start);
        let page = core::ptr::slice_from_raw_parts(from, PAGE_SIZE);
        // SAFETY: the frames hold the folio's bytes; its range lies in the window. A page that is there is left as it is.
        unsafe { (node.mmu).copy((window, addr), page, Access::Writable) }.is_ok()
    };
    range
        .clone()
        .step_by(PAGE_SIZE)
        .take_while(is_there)
        .count()
}

/// How the page that was touched comes.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    addr: usize,
    /// It is written, or probably will be.
    write: bool,
    level: u32,
}

impl Arrival {
    fn of(cache: &PageCache, touched: Touched, before: PageState) -> Self {
        let level = match before.is_swapped() {
            true => cache.node.level_after(before),
            false => 0,
        };
        // A hot page that was dirty when it was here last will be written to again: the fault
        // of that write would cost more than another write of the page to swap.
        let will_be = level > 0 && before.was_written();
        Self {
            addr: touched.addr,
            write: touched.write || will_be,
            level,
        }
    }
}

/// The state of a page that is mapped now: as it was read, or about to be written.
fn enter(view: &View, lock: &mut PageLock<'_>, arrival: Option<Arrival>, protected: bool) {
    let before = lock.state();
    let level = arrival.map_or(0, |arrival| arrival.level);
    if protected && !arrival.is_some_and(|arrival| arrival.write) {
        return lock.set(before.to_clean().with_level(level));
    }
    lock.set(before.to_dirty().with_level(level));
    if let (Some(slot), Some(swap)) = (lock.slot(), &view.swap) {
        lock.set_slot(None);
        swap.put(slot);
    }
}
