//! A fault on a page that is not cached: the choice of its read.

use super::{Fault, FaultFlags, Wait, hole};
use crate::PAGE_SIZE;
use crate::budget::Need;
use crate::cache::folio::{BLOCK_BYTES, BLOCK_PAGES};
use crate::cache::node::FrameUse;
use crate::cache::reads::extent::{Part, extent};
use crate::cache::reads::{ahead, read};
use crate::cache::{FolioRef, PageCache};
use crate::page::Advice;
use crate::readahead::{Plan, Touch};
use crate::stage::Stage;
use core::ops::Range;
use sync::Arc;

/// Budget that a fault should find free before it begins: its frames, its
/// window pages, a page table.
pub(super) const HEADROOM: usize = 2 * BLOCK_PAGES + 2;

// Not inlined: its variables would be on the handler's stack in all other faults.
#[inline(never)]
pub(super) fn fault(
    cache: &Arc<PageCache>,
    addr: usize,
    advice: Advice,
    flags: FaultFlags,
) -> Fault {
    let most = match absent(cache, addr, flags) {
        Ok(most) => most,
        Err(fault) => return fault,
    };
    let plan = ahead::plan(cache, addr, most.clone(), Touch::Miss, advice);
    // By reference: a plan is large for the handler's stack.
    let Some(plan) = &plan else {
        return untold(cache, addr, addr..addr + PAGE_SIZE);
    };
    let demand = cache.address(plan.demand.start * PAGE_SIZE as u64)
        ..cache.address(plan.demand.end * PAGE_SIZE as u64);
    let range = demand.start.max(most.start)..demand.end.min(most.end);
    match self::demand(cache, addr, range.clone()) {
        Ok(held) => {
            if held.range() != range {
                ahead::unread(cache, plan, &range, held.range());
            }
            cache.node.stats.major_faults.add(1);
            let begun = is_behind_much(plan, flags) && read::begin(cache, &held);
            ahead::issue(cache, &plan.ahead);
            Fault::Retry(match begun {
                true => Wait::begun(cache, held),
                false => Wait::read(cache, held),
            })
        }
        // Somebody else reads the page: it will be mapped, and what is planned ahead of it is as good as before.
        Err(Fault::Again) => {
            ahead::unread(cache, plan, &range, addr..addr + PAGE_SIZE);
            ahead::issue(cache, &plan.ahead);
            Fault::Again
        }
        // It is planned again with the touch, once there is memory.
        Err(fault) => {
            ahead::unread(cache, plan, &range, addr..addr);
            ahead::withdraw(cache, &plan.ahead);
            fault
        }
    }
}

/// True if a demanded folio would wait for long behind the reads of its own plan: the device serves requests in turn, and has 2 MiB to read
/// before. After a first wait this thread reads, and so gets the error if that fails.
fn is_behind_much(plan: &Plan, flags: FaultFlags) -> bool {
    !flags.tried && plan.ahead.len() > BLOCK_PAGES as u64
}

/// As `fault`, for a caller that knows which pages it needs: `pages` from `addr` on are read, as
/// far as they are in one block and none is cached.
pub(super) fn asked(cache: &Arc<PageCache>, addr: usize, pages: u8, flags: FaultFlags) -> Fault {
    let most = match absent(cache, addr, flags) {
        Ok(most) => most,
        Err(fault) => return fault,
    };
    let end = addr + usize::from(pages) * PAGE_SIZE;
    untold(cache, addr, addr..end.min(most.end))
}

/// Reads `range`. Read-ahead was not told, and has nothing to take back.
// Not inlined: the handler's stack has no variables of it while read-ahead is asked.
#[inline(never)]
fn untold(cache: &Arc<PageCache>, addr: usize, range: Range<usize>) -> Fault {
    match demand(cache, addr, range) {
        Ok(held) => {
            cache.node.stats.major_faults.add(1);
            Fault::Retry(Wait::read(cache, held))
        }
        Err(fault) => fault,
    }
}

/// The pages around `addr`, in its block, that are data and not cached. Or how
/// the fault goes on: it is short of memory, or in a hole, which is mapped.
pub(super) fn absent(
    cache: &Arc<PageCache>,
    addr: usize,
    flags: FaultFlags,
) -> Result<Range<usize>, Fault> {
    if !cache.node.budget.has_free(HEADROOM as u64 + cache.floor()) {
        return Err(Fault::Retry(Wait::memory(cache, Need::Pages(HEADROOM))));
    }
    let within = match extent(cache, addr) {
        // Of private memory: the page is something else by now.
        Ok(Part::Hole(_)) if cache.is_private() => return Err(Fault::Again),
        Ok(Part::Hole(range)) => return Err(hole::map(cache, addr, range, flags.write)),
        Ok(Part::Data(range)) => range,
        Err(error) => return Err(Fault::Error(error.into())),
    };
    let block = addr & !(BLOCK_BYTES - 1);
    let most = block.max(within.start)..(block + BLOCK_BYTES).min(within.end);
    Ok(cache.absent_around(addr, most))
}

/// A folio of `range`, which is in one block and has `addr`: in the index,
/// locked, to be read, or filled, by the caller. Or how the fault goes on.
pub(super) fn demand(
    cache: &Arc<PageCache>,
    addr: usize,
    mut range: Range<usize>,
) -> Result<FolioRef<'_>, Fault> {
    let _stage = Stage::Frames.span();
    let node = &cache.node;
    debug_assert!(range.contains(&addr));
    // Others may have read a part of it meanwhile, or there are no frames in a
    // row: then the page alone.
    loop {
        let pages = (range.end - range.start) / PAGE_SIZE;
        let folio = match node.alloc_folio(cache, range.start, pages, FrameUse::Demand) {
            Ok(folio) => folio,
            Err(Need::Frame) if pages > 1 => {
                range = addr..addr + PAGE_SIZE;
                continue;
            }
            Err(need) => return Err(Fault::Retry(Wait::memory(cache, need))),
        };
        if let Some(held) = cache.insert(folio) {
            return Ok(held);
        }
        node.abandon(folio);
        if pages == 1 {
            // Somebody else inserted it, or it was truncated.
            return Err(Fault::Again);
        }
        range = addr..addr + PAGE_SIZE;
    }
}
