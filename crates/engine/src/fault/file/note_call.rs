//! Read-ahead for calls that bring a range in, one after the other, as a program reads a file into a buffer.
//!
//! The call reads all of its pages at once (`fault_in`), so that they meet no miss, and the policy sees none of them. It is told
//! of the range as a whole, when the call has its pages.

use crate::PAGE_SIZE;
use crate::cache::PageCache;
use crate::cache::reads::ahead;
use crate::mm::AddressSpace;
use crate::policy::MissAccounting;
use core::ops::Range;

/// A call of the program has brought `range` in. If it is of a file, and such calls go through that in order, starts to read what
/// comes next, and waits for no read. Reclaim may make room for the reads, as for those of a fault.
pub fn note_call(space: &AddressSpace, range: &Range<usize>) {
    let Ok(vma) = space.lock_vma_or_mmap_lock(range.start) else {
        return;
    };
    let mapped = vma.vma().start()..vma.vma().end();
    let range =
        range.start & !(PAGE_SIZE - 1)..range.end.next_multiple_of(PAGE_SIZE).min(mapped.end);
    vma.with(|attributes| {
        let Some(cache) = PageCache::shown(&attributes.backing) else {
            return;
        };
        if cache.node.policies.miss_accounting == MissAccounting::Adaptive && !range.is_empty() {
            let start = cache
                .window
                .address(attributes.pgoff, range.start - mapped.start);
            ahead::note_call(cache, start..start + range.len(), attributes.advice);
        }
    });
}
