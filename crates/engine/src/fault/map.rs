//! Mapping what is cached: the faulting folio, and its neighbours.

use super::wait::Wait;
use super::{Fault, FaultError, FaultFlags, ahead};
use crate::PAGE_SIZE;
use crate::cache::folio::{BLOCK_BYTES, BLOCK_PAGES, Folio, NO_FOLIO, flag};
use crate::cache::node::FrameUse;
use crate::cache::window::Enter;
use crate::cache::{FolioRef, PageCache};
use crate::mm::Advice;
use crate::mmu::{MmuError, TABLE_SPAN};
use crate::readahead::Touch;
use crate::reclaim::Need;
use core::ops::Range;
use sync::Arc;

/// Maps an uptodate folio, then the neighbours that are cached.
pub(super) fn folio(
    cache: &Arc<PageCache>,
    folio: FolioRef<'_>,
    addr: usize,
    advice: Advice,
    flags: FaultFlags,
) -> Fault {
    if !folio.try_lock() {
        return Fault::Retry(Wait::folio(cache, folio));
    }
    let state = folio.state();
    if state & (flag::DEAD | flag::MAPPED | flag::ERROR) != 0 {
        // Changed since the look-up: the touch decides again.
        release(cache, &folio);
        return Fault::Mapped;
    }
    let pages = folio.range();
    match install(cache, &folio, 0) {
        Ok(()) => folio.unlock(),
        Err(error) => {
            release(cache, &folio);
            return match error {
                Refused::Memory => Fault::Retry(Wait::memory(cache, MAPPING)),
                Refused::Zapping => Fault::Retry(Wait::table(cache, addr)),
                Refused::Mmu(error) => Fault::Error(mmu_error(error)),
            };
        }
    }
    let stats = &cache.node.stats;
    if !flags.tried {
        stats.minor_faults.add(1);
    }
    drop(folio);
    around(cache, addr);
    if state & flag::READAHEAD != 0 {
        stats
            .readahead_used
            .add(((pages.end - pages.start) / PAGE_SIZE) as u64);
        ahead::touched(cache, addr, pages, Touch::FirstUse, advice);
    }
    Fault::Mapped
}

/// What mapping a folio takes: its pages, a page table, a page of the
/// window's own table.
const MAPPING: Need = Need::Pages(BLOCK_PAGES + 2);

/// Unlocks a folio that was not mapped.
fn release(cache: &PageCache, folio: &Folio) {
    if !folio.is(flag::DEAD) {
        cache.node.lists.add(&cache.node.folios, folio);
    }
    folio.unlock();
}

enum Refused {
    Memory,
    Zapping,
    Mmu(MmuError),
}

fn mmu_error(error: MmuError) -> FaultError {
    match error {
        MmuError::NoMemory => FaultError::NoMemory,
        MmuError::Gone | MmuError::Closed(_) => FaultError::NotMapped,
        MmuError::System(errno) => FaultError::Io(errno),
    }
}

/// Copies a folio into the window and frees its frames. The caller holds the
/// folio lock.
fn install(cache: &PageCache, folio: &Folio, reserve: u64) -> Result<(), Refused> {
    let node = &cache.node;
    let (addr, pages) = (folio.range().start, folio.pages());
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
    let source = node.frame_address(folio);
    let window = cache.window.reservation();
    // SAFETY: the frames hold the folio's bytes; its range lies in the window.
    let copied = unsafe { node.mmu.copy(window, addr, source, pages * PAGE_SIZE) };
    if let Err(error) = copied {
        cache.leave(addr, pages);
        return undo(Refused::Mmu(error));
    }
    folio.change(flag::MAPPED | refaulted(cache, addr), flag::READAHEAD);
    node.free_frames(folio);
    node.lists.add(&node.folios, folio);
    Ok(())
}

/// `ACTIVE` if the page was evicted so recently that it belongs to the working
/// set.
fn refaulted(cache: &PageCache, addr: usize) -> u32 {
    let node = &cache.node;
    match node.ghosts.recall(addr) {
        Some(distance) => {
            node.stats.refaults.add(1);
            let near = distance as usize <= node.lists.mapped_pages();
            if near { flag::ACTIVE } else { 0 }
        }
        None => 0,
    }
}

/// The bits that a neighbour is chosen by.
const AROUND: u32 = flag::UPTODATE | flag::MAPPED | flag::LOCKED | flag::READAHEAD;

/// Maps the cached neighbours in the fault's block. They prove nothing about
/// the access pattern and are not counted as hits (document 003, first patch);
/// what the policy has read ahead is left for its own first use, by which the
/// policy learns whether it was right.
fn around(cache: &PageCache, addr: usize) {
    let node = &cache.node;
    let block = addr & !(BLOCK_BYTES - 1);
    let mut neighbours = [NO_FOLIO; BLOCK_PAGES];
    let mut count = 0;
    {
        let bucket = node.index.lock(addr, &node.folios);
        let ready = bucket.iter().filter(|folio| {
            folio.range().start & !(BLOCK_BYTES - 1) == block
                && folio.state() & AROUND == flag::UPTODATE
        });
        for folio in ready.take(BLOCK_PAGES) {
            bucket.get(folio);
            neighbours[count] = folio.id();
            count += 1;
        }
    }
    for &id in &neighbours[..count] {
        let folio = FolioRef::new(node, node.folios.get(id));
        if !folio.try_lock() {
            continue;
        }
        let ready = folio.state() & (flag::UPTODATE | flag::MAPPED | flag::DEAD) == flag::UPTODATE;
        if ready && install(cache, &folio, BLOCK_PAGES as u64).is_ok() {
            node.stats.fault_around.add(folio.pages() as u64);
            folio.unlock();
        } else {
            release(cache, &folio);
        }
    }
}

/// The most blocks of a hole that one fault maps: a page table's.
const HOLE_BLOCKS: usize = TABLE_SPAN / BLOCK_BYTES;

/// Maps zeros over the part of `hole` around `addr`: a block, or up to a page
/// table's span if the page before is mapped too, so that a scan is seen.
pub(super) fn hole(cache: &Arc<PageCache>, addr: usize, hole: Range<usize>) -> Fault {
    let node = &cache.node;
    let block = addr & !(BLOCK_BYTES - 1);
    let scanning = addr > cache.addresses().start
        && cache
            .find(addr - PAGE_SIZE)
            .is_some_and(|before| before.is(flag::MAPPED));
    let table_end = (addr & !(TABLE_SPAN - 1)) + TABLE_SPAN;
    let end = match scanning {
        true => table_end.min(hole.end),
        false => (block + BLOCK_BYTES).min(hole.end),
    };
    let start = block.max(hole.start);
    let mut folios = [NO_FOLIO; HOLE_BLOCKS];
    let (mut count, mut next) = (0, start);
    while next < end {
        let stop = ((next & !(BLOCK_BYTES - 1)) + BLOCK_BYTES).min(end);
        let pages = (stop - next) / PAGE_SIZE;
        let folio = match node.alloc_folio(cache, next, pages, FrameUse::Hole) {
            Ok(folio) => folio,
            Err(need) if count == 0 => return Fault::Retry(Wait::memory(cache, need)),
            Err(_) => break,
        };
        folio.change(flag::UPTODATE | flag::HOLE, 0);
        let Some(held) = cache.insert(folio) else {
            node.abandon(folio);
            break;
        };
        held.leak();
        folios[count] = folio.id();
        count += 1;
        next = stop;
    }
    if count == 0 {
        return match cache.find(addr) {
            Some(folio) if folio.is(flag::LOCKED) => Fault::Retry(Wait::folio(cache, folio)),
            Some(_) => Fault::Mapped,
            None if cache.neighbour_overlaps(start..(start + BLOCK_BYTES).min(end)) => {
                single_zero(cache, addr)
            }
            // Truncated, or evicted again, meanwhile: look again.
            None => Fault::Mapped,
        };
    }
    finish_hole(cache, start..next, &folios[..count])
}

/// Maps the inserted, locked hole folios of `run` and releases them.
fn finish_hole(cache: &Arc<PageCache>, run: Range<usize>, folios: &[u32]) -> Fault {
    let node = &cache.node;
    let pages = (run.end - run.start) / PAGE_SIZE;
    let entered = cache.window.enter(run.start, pages, &node.budget, 0);
    let mapped = match entered {
        Enter::Entered => {
            let window = cache.window.reservation();
            node.mmu.zero(window, run.start, run.end - run.start)
        }
        Enter::NoMemory | Enter::Zapping => Ok(()),
    };
    let done = entered == Enter::Entered && mapped.is_ok();
    if entered == Enter::Entered && !done {
        cache.leave(run.start, pages);
    }
    for &id in folios {
        let folio = FolioRef::new(node, node.folios.get(id));
        if done {
            folio.change(flag::MAPPED, 0);
            node.lists.add(&node.folios, &folio);
            folio.unlock();
        } else {
            super::read::discard(node, cache, &folio);
        }
    }
    if done {
        node.stats.zero_pages.add(pages as u64);
    }
    match (entered, mapped) {
        (Enter::NoMemory, _) => Fault::Retry(Wait::memory(cache, MAPPING)),
        (Enter::Zapping, _) => Fault::Retry(Wait::table(cache, run.start)),
        (Enter::Entered, Err(error)) => Fault::Error(mmu_error(error)),
        (Enter::Entered, Ok(())) => Fault::Mapped,
    }
}

/// Maps zeros over one page whose block holds other folios already.
fn single_zero(cache: &Arc<PageCache>, addr: usize) -> Fault {
    let node = &cache.node;
    let folio = match node.alloc_folio(cache, addr, 1, FrameUse::Hole) {
        Ok(folio) => folio,
        Err(need) => return Fault::Retry(Wait::memory(cache, need)),
    };
    folio.change(flag::UPTODATE | flag::HOLE, 0);
    match cache.insert(folio) {
        Some(held) => {
            let id = held.leak().id();
            finish_hole(cache, addr..addr + PAGE_SIZE, &[id])
        }
        None => {
            node.abandon(folio);
            Fault::Mapped
        }
    }
}

impl PageCache {
    /// Counts residents out of the window; if they were the last of a page
    /// table's span, zaps it. For a mapping that failed half-way.
    fn leave(&self, addr: usize, pages: usize) {
        let range = match self.window.leave(addr, pages) {
            Some(table) => {
                self.node.mmu.zap(core::slice::from_ref(&table));
                return self.window.zapped(&table, &self.node.budget);
            }
            None => addr..addr + pages * PAGE_SIZE,
        };
        self.node.mmu.zap(core::slice::from_ref(&range));
    }

    /// True if any folio overlaps the range, which lies in one block.
    fn neighbour_overlaps(&self, range: Range<usize>) -> bool {
        let bucket = self.node.index.lock(range.start, &self.node.folios);
        bucket.overlaps(&range)
    }
}

const _: () = assert!(HOLE_BLOCKS <= 64, "the handler's stack is small");
