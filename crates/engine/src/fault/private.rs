//! Mapping what was read of private memory: its pages become the memory's own, and
//! the folio goes.

use super::map::{Refused, Touched};
use crate::PAGE_SIZE;
use crate::anon::pages::PageLock;
use crate::cache::PageCache;
use crate::cache::folio::{BLOCK_PAGES, Folio};
use crate::cache::window::Enter;
use crate::mmu::Access;
use crate::swap::View;

/// Copies a folio into the window, protected, but for what is `touched` by a write.
/// The caller holds the folio lock, and discards the folio afterwards.
pub(super) fn install(
    cache: &PageCache,
    view: &View,
    folio: &Folio,
    reserve: u64,
    touched: Option<Touched>,
) -> Result<(), Refused> {
    let node = &cache.node;
    let (addr, pages) = (folio.range().start, folio.pages());
    let first = cache.page(addr) as usize;
    // While they are locked, nobody gives up what they were read from.
    let mut locks = [const { None }; BLOCK_PAGES];
    for (page, lock) in (first..).zip(&mut locks[..pages]) {
        let state = view.pages.unlocked_state(page).ok_or(Refused::Changed)?;
        assert!(!state.is_resident(), "page {page} is mapped and cached");
        *lock = Some(view.pages.try_lock(page, state).ok_or(Refused::Changed)?);
    }
    if !node.budget.try_charge(pages as u64, reserve) {
        return Err(Refused::Memory);
    }
    let undo = |refused| {
        node.budget.uncharge(pages as u64);
        Err(refused)
    };
    match cache.window.enter(addr, pages, &node.budget, reserve) {
        Enter::Entered => {}
        Enter::NoMemory => return undo(Refused::Memory),
        Enter::Zapping => return undo(Refused::Zapping),
    }
    let written = touched.filter(|touched| touched.write);
    let alone = pages == 1 && written.is_some();
    let access = match alone {
        true => Access::Writable,
        false => Access::ReadOnly,
    };
    let source = node.frame_address(folio);
    let window = cache.window.reservation();
    // SAFETY: the frames hold the folio's bytes; its range lies in the window.
    let mut mapped = unsafe {
        node.mmu
            .copy(window, addr, source, pages * PAGE_SIZE, access)
    };
    if let Some(written) = written.filter(|_| !alone) {
        mapped = mapped.and_then(|()| node.mmu.make_writable(window, written.addr));
    }
    if let Err(error) = mapped {
        cache.leave(addr, pages);
        return undo(Refused::Mmu(error));
    }
    let mut from_swap = 0;
    let touched = touched.map(|touched| (cache.page(touched.addr) as usize, touched.write));
    for (page, lock) in (first..).zip(locks.iter_mut().flatten()) {
        from_swap += u64::from(lock.state().is_swapped());
        let touched = touched.filter(|&(touched, _)| touched == page);
        enter(cache, view, lock, touched.map(|(_, write)| write));
    }
    node.anonymous_in.add(pages as u64);
    if let Some(swap) = &view.swap {
        swap.stats.pages_in.add(from_swap);
    }
    Ok(())
}

/// What a page that is mapped now is: as it was read, or about to be written.
fn enter(cache: &PageCache, view: &View, lock: &mut PageLock<'_>, write: Option<bool>) {
    let before = lock.state();
    // What comes along with another proves nothing.
    let level = match write {
        Some(_) if before.is_swapped() => cache.node.level_after(before),
        _ => 0,
    };
    if write != Some(true) {
        return lock.set(before.to_clean().with_level(level));
    }
    lock.set(before.to_dirty().with_level(level));
    if let (Some(slot), Some(swap)) = (lock.slot(), &view.swap) {
        lock.set_slot(None);
        swap.put(slot);
    }
}
