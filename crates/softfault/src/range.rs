//! Which offsets and addresses of a map a caller means.

use crate::error::FaultError;
use core::ops::{Bound, Range, RangeBounds};
use softfault_engine::PAGE_SIZE;

/// The offsets that a range means in a map of `len` bytes.
pub(crate) fn offsets(range: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    start..end
}

/// The addresses of a range of offsets, if it is within a map of `len` bytes at `start`.
pub(crate) fn within(
    start: usize,
    len: usize,
    range: &Range<usize>,
) -> Result<Range<usize>, FaultError> {
    match range.start <= range.end && range.end <= len {
        true => Ok(start + range.start..start + range.end),
        false => Err(FaultError::OutOfRange),
    }
}

/// The pages that have these addresses.
pub(crate) fn whole_pages(addresses: &Range<usize>) -> Range<usize> {
    addresses.start & !(PAGE_SIZE - 1)..addresses.end.next_multiple_of(PAGE_SIZE)
}

/// The addresses of `len` bytes from `offset` on of a map that has `all`. Advice is
/// given by pages, so the last may be named whole.
pub(crate) fn advised(
    all: &Range<usize>,
    offset: usize,
    len: usize,
) -> Result<Range<usize>, FaultError> {
    let start = all.start.saturating_add(offset);
    let range = start..start.saturating_add(len);
    match range.end <= all.end.next_multiple_of(PAGE_SIZE) {
        true => Ok(range),
        false => Err(FaultError::OutOfRange),
    }
}

/// The addresses of `count` bytes from `offset` on of a map, as many as it has.
pub(crate) fn clip(start: usize, len: usize, offset: usize, count: usize) -> Range<usize> {
    let offset = offset.min(len);
    start + offset..start + offset + count.min(len - offset)
}
