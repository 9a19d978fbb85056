//! The store's contents at an address: bytes to read, or a hole.

use crate::PAGE_SIZE;
use crate::cache::PageCache;
use crate::stage::Stage;
use crate::store::{Extent, StoreError};
use core::ops::Range;

/// The part of the window around an address that is all data or all hole.
pub(crate) enum Part {
    Data(Range<usize>),
    Hole(Range<usize>),
}

/// Asks the store whether `addr` is in a hole or in data.
pub(crate) fn extent(cache: &PageCache, addr: usize) -> Result<Part, StoreError> {
    let _stage = Stage::Extent.span();
    let window = cache.addresses();
    let page = PAGE_SIZE as u64;
    let last = (window.end - window.start) as u64;
    let end = cache.end().next_multiple_of(page);
    let offset = cache.offset(addr);
    if offset >= end {
        // Past a truncated end that is to show zeros.
        return Ok(Part::Hole(addr..addr + PAGE_SIZE));
    }
    if cache.is_writable() {
        // A hole of a file that is written to is read, like data, so nobody has to ask for it. Zeros that cost nothing would be
        // replaced at a write that nobody sees; and between the look for the hole and its mapping, a page of it can be written,
        // written back and evicted.
        let end = end.min(last).max(offset + page);
        return Ok(Part::Data(window.start..cache.address(end)));
    }
    let clip = |range: Range<u64>| {
        let end = range.end.next_multiple_of(page).clamp(offset + page, last);
        cache.address(range.start.min(offset))..cache.address(end)
    };
    Ok(match cache.store.extent(offset)? {
        Extent::Data(range) => Part::Data(clip(range)),
        // The range past the end of the store is no hole of it.
        Extent::Hole(range) => Part::Hole(clip(range.start..range.end.min(end))),
    })
}
