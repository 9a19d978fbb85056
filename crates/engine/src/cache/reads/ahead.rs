//! Read-ahead: asks the policy, and submits its plan.

use super::batch::{ReadBatch, run};
use super::read::Completion;
use crate::PAGE_SIZE;
use crate::cache::PageCache;
use crate::cache::folio::flag;
use crate::cache::node::MAX_WINDOW;
use crate::page::Advice;
use crate::readahead::{Cursor, Limits, Plan, Reads, Touch};
use crate::stage::Stage;
use crate::store::NO_COOKIE;
use core::ops::Range;
use sync::Arc;
use sync::atomic::Ordering::Relaxed;

/// Random reads that keep a device busy.
const QUEUE_DEPTH: u32 = 32;

/// Misses in a row that were answered by the page alone, from which on a file counts as read at random.
const AT_RANDOM: u32 = 64;

/// Tells the policy of a touch and asks for its plan. `folio` is the folio that the
/// touch maps. `None`: the policy was not told, and the page is read alone.
pub(crate) fn plan(
    cache: &PageCache,
    addr: usize,
    folio: Range<usize>,
    touch: Touch,
    advice: Advice,
) -> Option<Plan> {
    let _stage = Stage::ReadAhead.span();
    let page = |addr: usize| cache.offset(addr) / PAGE_SIZE as u64;
    let mapped = cache.mapped_beside(addr, &folio);
    let (touched, folio) = (page(addr), page(folio.start)..page(folio.end));
    // Before the lock: it looks at as many cache lines as the pool has parts.
    let used = cache.node.frames.counts().used;
    // A miss at random does not wait for an answer that is all but certain: threads queued here behind a holder that had lost
    // its processor.
    let mut readahead = match touch == Touch::Miss && cache.at_random.load(Relaxed) == AT_RANDOM {
        true => cache.readahead.try_lock()?,
        false => cache.readahead.lock(),
    };
    let limits = limits(cache, used, readahead.outstanding(), folio.end);
    let plan = readahead.touch(touched, folio, touch, mapped, advice, &limits);
    let single = touch == Touch::Miss && plan.is_single();
    let before = cache.at_random.load(Relaxed);
    let in_a_row = if single { AT_RANDOM.min(before + 1) } else { 0 };
    if in_a_row != before {
        cache.at_random.store(in_a_row, Relaxed);
    }
    Some(plan)
}

/// The limits at this moment, with `used` frames, so many pages read ahead and not used yet, and a touch of pages that end with `end`.
fn limits(cache: &PageCache, used: usize, outstanding: u32, end: u64) -> Limits {
    let node = &cache.node;
    // Half of the rest is for others.
    let room = |frames: usize| ((frames / 4 * 3).saturating_sub(used) / 2) as u32;
    Limits {
        max_window: MAX_WINDOW.min(node.readahead_frames() as u32 / 4),
        max_ahead: outstanding + room(node.readahead_frames()),
        max_sure: outstanding + room(node.sure_frames()),
        memory: node.budget.limit(),
        // The file may be truncated at this moment, the page not.
        file_pages: cache.end().div_ceil(PAGE_SIZE as u64).max(end),
        queue_depth: QUEUE_DEPTH,
    }
}

/// A call has brought the pages of a range in, which no touch has shown.
pub(crate) fn note_call(cache: &Arc<PageCache>, range: Range<usize>, advice: Advice) {
    let plan = {
        let _stage = Stage::ReadAhead.span();
        let pages = cache.page(range.start)..cache.page(range.end);
        let used = cache.node.frames.counts().used;
        let mut readahead = cache.readahead.lock();
        let limits = limits(cache, used, readahead.outstanding(), pages.end);
        readahead.note_call(pages, advice, &limits)
    };
    issue(cache, &plan);
}

/// Of the plan's demand only `read` is read.
pub(crate) fn unread(cache: &PageCache, plan: &Plan, demand: &Range<usize>, read: Range<usize>) {
    let page = |addr: usize| cache.page(addr);
    let mut readahead = cache.readahead.lock();
    let before = page(demand.start)..page(read.start.max(demand.start));
    readahead.unread(&plan.ahead, before);
    readahead.unread(&plan.ahead, page(read.end)..page(demand.end));
}

/// Nothing of the plan's read-ahead is read.
pub(crate) fn withdraw(cache: &PageCache, ahead: &Reads) {
    if !ahead.is_empty() {
        cache.readahead.lock().withdrawn(ahead);
    }
}

/// Takes the completions of reads that no thread has waited for.
pub(crate) fn take_completed(cache: &PageCache) {
    cache.store.reap(NO_COOKIE, &Completion(&cache.node), 0);
}

/// Pages that were read ahead are mapped with a touch of others.
pub(crate) fn mapped_with(cache: &PageCache, pages: Range<usize>) {
    let pages = cache.page(pages.start)..cache.page(pages.end);
    cache.readahead.lock().mapped_with(pages);
}

/// A touch that needs no read of its own.
pub(crate) fn touched(
    cache: &Arc<PageCache>,
    addr: usize,
    folio: Range<usize>,
    touch: Touch,
    advice: Advice,
) {
    let plan = plan(cache, addr, folio, touch, advice);
    // By reference: a plan is large for the handler's stack.
    if let Some(plan) = &plan {
        issue(cache, &plan.ahead);
    }
}

/// Submits the reads of a plan. Pages that find no frame or no place in a queue are
/// left for the fault that needs them.
pub(crate) fn issue(cache: &Arc<PageCache>, ahead: &Reads) {
    if ahead.is_empty() {
        return;
    }
    let _stage = Stage::Submit.span();
    // Reads that are over give their places back.
    take_completed(cache);
    submit(cache, ahead);
}

// Its batch is not on the handler's stack while others' reads are taken.
#[inline(never)]
fn submit(cache: &Arc<PageCache>, ahead: &Reads) {
    let mut batch = ReadBatch::new(cache, flag::READAHEAD);
    if ahead.is_sure() {
        batch.is_sure();
    }
    let (mut cursor, mut refused) = (Cursor::default(), None);
    while let Some(pages) = ahead.next(&mut cursor) {
        let (first, single) = (pages.start, pages.end - pages.start == 1);
        let pages = match single {
            true => ahead.singles(first, &mut cursor),
            false => pages,
        };
        if !run(&mut batch, pages, single) {
            refused = Some(batch.stopped.map_or(first, |addr| cache.page(addr)));
            break;
        }
    }
    batch.submit();
    // Pages that the store did not take were added before those that found no frame.
    let refused = batch.refused.map(|addr| cache.page(addr)).or(refused);
    // None is an answer too: the policy learns that it is short of room.
    let started = batch.started;
    cache.readahead.lock().submitted(ahead, started, refused);
}

/// Starts to read the pages of `range` that are not cached, as far as spare
/// frames and the store's queue allow; waits for nothing. Returns the address
/// it got to.
pub fn prefetch(cache: &Arc<PageCache>, range: Range<usize>) -> usize {
    let window = cache.addresses();
    let page = |addr: usize| cache.offset(addr) / PAGE_SIZE as u64;
    let mut batch = ReadBatch::new(cache, 0);
    let mut next = range.start.max(window.start) & !(PAGE_SIZE - 1);
    let end = range.end.min(window.end);
    /// Pages between two looks at the room there is.
    const STEP: usize = 64 * PAGE_SIZE;
    while next < end {
        let stop = (next + STEP).min(end.next_multiple_of(PAGE_SIZE));
        if !run(&mut batch, page(next)..page(stop), false) {
            break;
        }
        next = stop;
    }
    batch.submit();
    next.min(end)
}
