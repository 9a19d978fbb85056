//! Mapping holes: zeros that cost no I/O, no frames and no memory.

use super::map::MAPPING;
use super::{Fault, Wait, mmu_error};
use crate::PAGE_SIZE;
use crate::cache::folio::{BLOCK_BYTES, NO_FOLIO, flag};
use crate::cache::node::FrameUse;
use crate::cache::reads::read;
use crate::cache::window::CountResult;
use crate::cache::{FolioRef, PageCache};
use crate::mmu::TABLE_SPAN;
use core::ops::Range;
use sync::Arc;

/// The most blocks of a hole that one fault maps: a page table's.
const HOLE_BLOCKS: usize = TABLE_SPAN / BLOCK_BYTES;

/// Maps zeros over the part of `hole` around `addr`: a block, or up to a page
/// table's span if the page before is mapped too, so that a scan is seen. Not for a write: those
/// behind would each fault once more.
// Not inlined: its variables would be on the handler's stack in all other faults.
#[inline(never)]
pub(super) fn map(cache: &Arc<PageCache>, addr: usize, hole: Range<usize>, write: bool) -> Fault {
    let node = &cache.node;
    let block = addr & !(BLOCK_BYTES - 1);
    let scanning = !write
        && addr > cache.addresses().start
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
            Some(folio) if folio.is(flag::MAPPED) => Fault::Mapped,
            Some(_) => Fault::Again,
            None if cache.neighbour_overlaps(start..(start + BLOCK_BYTES).min(end)) => {
                single_zero(cache, addr)
            }
            // Truncated, or evicted again, meanwhile.
            None => Fault::Again,
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
        CountResult::Counted => {
            let window = cache.window.reservation();
            node.mmu.zero(window, run.start, run.end - run.start)
        }
        CountResult::NoMemory | CountResult::Zapping => Ok(()),
    };
    let done = entered == CountResult::Counted && mapped.is_ok();
    if entered == CountResult::Counted && !done {
        cache.leave(run.start, pages);
    }
    for &id in folios {
        let folio = FolioRef::new(node, node.folios.get(id));
        if done {
            folio.change(flag::MAPPED, 0);
            node.lru.lists.add(&node.folios, &folio);
            folio.unlock();
        } else {
            read::discard(node, cache, &folio);
        }
    }
    if done {
        node.stats.zero_pages.add(pages as u64);
    }
    match (entered, mapped) {
        (CountResult::NoMemory, _) => Fault::Retry(Wait::memory(cache, MAPPING)),
        (CountResult::Zapping, _) => Fault::Retry(Wait::table(cache, run.start)),
        (CountResult::Counted, Err(error)) => Fault::Error(mmu_error(error)),
        (CountResult::Counted, Ok(())) => Fault::Mapped,
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
            Fault::Again
        }
    }
}

impl PageCache {
    /// True if any folio overlaps the range, which lies in one block.
    fn neighbour_overlaps(&self, range: Range<usize>) -> bool {
        let bucket = self.node.index.lock(range.start, &self.node.folios);
        bucket.overlaps(&range)
    }
}

const _: () = assert!(HOLE_BLOCKS <= 64, "the handler's stack is small");
