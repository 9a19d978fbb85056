//! Reading ahead because the caller says so.

use super::ahead::{Batch, run};
use crate::PAGE_SIZE;
use crate::cache::PageCache;
use core::ops::Range;
use sync::Arc;

/// Starts to read the pages of `range` that are not cached, as far as spare
/// frames and the store's queue allow; waits for nothing. Returns the address
/// it got to.
pub fn prefetch(cache: &Arc<PageCache>, range: Range<usize>) -> usize {
    let window = cache.addresses();
    let page = |addr: usize| cache.offset(addr) / PAGE_SIZE as u64;
    let mut batch = Batch::new(cache, 0);
    let mut next = range.start.max(window.start) & !(PAGE_SIZE - 1);
    let end = range.end.min(window.end);
    /// Pages between two looks at the room there is.
    const STEP: usize = 64 * PAGE_SIZE;
    while next < end {
        let stop = (next + STEP).min(end.next_multiple_of(PAGE_SIZE));
        if !run(&mut batch, page(next)..page(stop)) {
            break;
        }
        next = stop;
    }
    batch.submit();
    next.min(end)
}
