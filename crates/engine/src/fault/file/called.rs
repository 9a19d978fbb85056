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
use sync::Arc;

/// A call of the program has brought `range`, of `cache`, in. If such calls go through the file in order, starts to read what comes
/// next; waits for nothing.
pub fn called(space: &AddressSpace, cache: &Arc<PageCache>, range: &Range<usize>) {
    if cache.node.policies.miss_accounting != MissAccounting::Adaptive {
        return;
    }
    let Ok(vma) = space.lock_vma_or_mmap_lock(range.start) else {
        return;
    };
    let pages = range.start & !(PAGE_SIZE - 1)..range.end.next_multiple_of(PAGE_SIZE);
    vma.with(|attributes| ahead::called(cache, pages, attributes.advice));
}
