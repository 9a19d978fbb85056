//! Mapping a folio that is cached.

use super::write::may_write;
use super::{Fault, FaultFlags, Wait, around, mmu_error};
use crate::PAGE_SIZE;
use crate::budget::Need;
use crate::cache::folio::{BLOCK_PAGES, Folio, flag};
use crate::cache::reads::{ahead, read};
use crate::cache::window::{CountResult, TABLE_PAGES};
use crate::cache::{FolioRef, PageCache};
use crate::fault::anon::install as private;
use crate::mmu::MmuError;
use crate::page::Advice;
use crate::readahead::Touch;
use core::ops::Range;
use sync::Arc;

/// Maps an uptodate folio, then the neighbours that are cached.
#[inline(never)]
pub(super) fn folio(
    cache: &Arc<PageCache>,
    folio: FolioRef<'_>,
    addr: usize,
    advice: Advice,
    flags: FaultFlags,
) -> Fault {
    if flags.write
        && let Err(wait) = may_write(cache, addr)
    {
        return Fault::Retry(wait.keeping(folio));
    }
    let (state, pages) = match one(cache, folio, addr, flags) {
        Ok(mapped) => mapped,
        Err(fault) => return fault,
    };
    let stats = &cache.node.stats;
    if !flags.tried {
        stats.minor_faults.add(1);
    }
    if flags.write {
        // Of the folio behind it each page would fault once more at its write.
        cache.settle_expected_before(pages.start);
    } else {
        around::neighbours(cache, addr, flag::READAHEAD);
    }
    if state & flag::READAHEAD != 0 {
        let end = match flags.write {
            true => pages.end,
            false => around::run(cache, pages.clone()),
        };
        let mapped = pages.start..end;
        stats
            .readahead_used
            .add(((mapped.end - mapped.start) / PAGE_SIZE) as u64);
        if state & flag::SURE != 0 && !flags.write {
            around::sure(cache, addr);
        }
        ahead::touched(cache, addr, mapped, Touch::FirstUse, advice);
    }
    Fault::Mapped
}

/// Maps an uptodate folio alone; its bits before, and its pages. Or how the
/// fault goes on.
pub(super) fn one(
    cache: &Arc<PageCache>,
    folio: FolioRef<'_>,
    addr: usize,
    flags: FaultFlags,
) -> Result<(u32, Range<usize>), Fault> {
    if !folio.try_lock() {
        return Err(Fault::Retry(Wait::folio(cache, folio)));
    }
    let state = folio.state();
    if state & (flag::DEAD | flag::MAPPED | flag::ERROR) != 0 {
        // Changed since the look-up.
        release(cache, &folio);
        return Err(match state & (flag::DEAD | flag::MAPPED) == flag::MAPPED {
            true => Fault::Mapped,
            false => Fault::Again,
        });
    }
    let pages = folio.range();
    let touched = Touched {
        addr,
        write: flags.write,
    };
    match install(cache, &folio, 0, Some(touched)) {
        Ok(()) => Ok((state, pages)),
        Err(error) => {
            release(cache, &folio);
            Err(match error {
                // It was read, perhaps just now: reclaim is to take others.
                Refused::Memory => Fault::Retry(Wait::memory(cache, MAPPING).keeping(folio)),
                Refused::Zapping => Fault::Retry(Wait::table(cache, addr).keeping(folio)),
                Refused::Changed => Fault::Again,
                Refused::Mmu(error) => Fault::Error(mmu_error(error)),
            })
        }
    }
}

/// The pages that mapping a folio may need. Not less than the real need: a fault that finds
/// so much free and is refused would come back at once, for ever.
pub(super) const MAPPING: Need = Need::Pages(2 * BLOCK_PAGES);
const _: () = assert!((TABLE_PAGES as usize) < BLOCK_PAGES);

/// Unlocks a folio that was not mapped.
pub(super) fn release(cache: &PageCache, folio: &Folio) {
    if !folio.is(flag::DEAD) {
        cache.node.lru.lists.add(&cache.node.folios, folio);
    }
    folio.unlock();
}

/// The touch that a fault is for.
#[derive(Debug, Clone, Copy)]
pub(in crate::fault) struct Touched {
    /// The page's address.
    pub(in crate::fault) addr: usize,
    /// It is a write.
    pub(in crate::fault) write: bool,
}

/// Why a folio was not mapped.
pub(in crate::fault) enum Refused {
    /// The budget has no room.
    Memory,
    /// Its page table is being zapped.
    Zapping,
    /// Somebody else is at work on a page of private memory.
    Changed,
    /// The page tables refused.
    Mmu(MmuError),
}

/// Copies a folio into the window, frees its frames and unlocks it: it is mapped from now
/// on, or the pages are private memory's own and it is gone. After an error it is locked, as
/// it was. `touched` is the touched page, if this is for a touch; private memory needs it.
pub(super) fn install(
    cache: &PageCache,
    folio: &Folio,
    reserve: u64,
    touched: Option<Touched>,
) -> Result<(), Refused> {
    match cache.private() {
        Some(view) => {
            private::install(cache, view, folio, reserve, touched)?;
            read::discard(&cache.node, cache, folio);
        }
        None => {
            install_folio(cache, folio, reserve, touched)?;
            folio.unlock();
        }
    }
    Ok(())
}

fn install_folio(
    cache: &PageCache,
    folio: &Folio,
    reserve: u64,
    touched: Option<Touched>,
) -> Result<(), Refused> {
    let node = &cache.node;
    let (addr, pages) = (folio.range().start, folio.pages());
    cache.enter(addr, pages, reserve)?;
    // If it cannot be written to at once, the next fault says why.
    let written = touched.filter(|touched| touched.write && cache.is_ready_for_write(touched.addr));
    let written = written.map(|touched| cache.expected(folio, touched.addr));
    let expects = (written.as_ref()).is_some_and(|pages| pages.len() > PAGE_SIZE);
    if let Some(pages) = &written {
        // Before anybody can write to them.
        cache.begin_dirty(folio, pages.clone());
    }
    // Where it fails, the first of several pages to be written to may be there, and written to. So the folio is mapped, and each page
    // that is missing comes as one that the program has thrown away (`vanished`), or its touch is told.
    if let Err(error) = cache.copy_in(folio, written.clone())
        && !expects
    {
        if written.is_some() {
            cache.end_dirty(folio, 0);
        }
        cache.leave(addr, pages);
        node.budget.uncharge(pages as u64);
        return Err(Refused::Mmu(error));
    }
    if written.is_some() {
        cache.note_writable(folio);
    }
    folio.change(flag::MAPPED | refaulted(cache, addr), flag::READAHEAD);
    match expects {
        true => node.begin_expected(folio),
        false => node.free_frames(folio),
    }
    node.lru.lists.add(&node.folios, folio);
    Ok(())
}

/// `ACTIVE` if the page was evicted so recently that it belongs to the working
/// set.
pub(super) fn refaulted(cache: &PageCache, addr: usize) -> u32 {
    let node = &cache.node;
    match node.lru.ghosts.recall(addr) {
        Some(distance) => {
            node.stats.refaults.add(1);
            let near = distance as usize <= node.lru.lists.mapped_pages();
            if near {
                node.balance.file_came_back(node.budget.limit());
            }
            if near { flag::ACTIVE } else { 0 }
        }
        None => 0,
    }
}

impl PageCache {
    /// Pays for pages that are about to be mapped, and counts them into the window.
    pub(in crate::fault) fn enter(
        &self,
        addr: usize,
        pages: usize,
        reserve: u64,
    ) -> Result<(), Refused> {
        let budget = &self.node.budget;
        if !budget.try_charge(pages as u64, reserve) {
            return Err(Refused::Memory);
        }
        let refused = match self.window.enter(addr, pages, budget, reserve) {
            CountResult::Counted => return Ok(()),
            CountResult::NoMemory => Refused::Memory,
            CountResult::Zapping => Refused::Zapping,
        };
        budget.uncharge(pages as u64);
        Err(refused)
    }

    /// Counts residents out of the window and zaps them. For a mapping that failed half-way.
    pub(in crate::fault) fn leave(&self, addr: usize, pages: usize) {
        let node = &self.node;
        (self.window).leave_and_zap(addr, pages, &*node.mmu, &node.budget);
    }
}
