//! The maps of a range.

use super::calls::Call;
use super::window::{Access, Window};
use super::{Arc, Maps, MmapRaw, NotMapped, Range, common, look};
use crate::access::{PAGE_SIZE, whole_pages};

/// A part of a range, and the map that has it.
pub(crate) struct Part {
    pub(crate) map: Arc<MmapRaw>,
    /// Its addresses.
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
    /// As the map was made, without later mprotect.
    pub(crate) made: Access,
    /// The pages stay until this goes, though they are unmapped.
    pub(super) call: Arc<Call>,
}

impl Part {
    /// The offsets in the map, as far as that has bytes: a file may end in the middle of its last page.
    pub(crate) fn offsets(&self) -> Range<usize> {
        let (start, len) = (self.map.as_ptr() as usize, self.map.len());
        let offset = |address: usize| (address - start).min(len);
        offset(self.range.start)..offset(self.range.end)
    }

    /// The offsets to bring in or keep, so that all of the part's pages are: the page in which the file ends is touched behind its
    /// end, too.
    pub(crate) fn kept_offsets(&self) -> Range<usize> {
        kept_offsets(&self.map, &self.range)
    }

    /// The maps that have a range, in its order.
    pub(crate) fn of(range: &Range<usize>) -> Result<Vec<Self>, NotMapped> {
        Self::among(&look(), range)
    }

    /// A range as a part of one map, if one has all of it: its runs may differ in their protection, or have other maps, too.
    pub(crate) fn of_one(range: &Range<usize>) -> Result<Option<Self>, NotMapped> {
        let maps = look();
        // If none has it, all of it may still be mapped.
        let parts = Self::among(&maps, range)?;
        let (Some(first), Some(window)) = (parts.into_iter().next(), maps.window(range.start))
        else {
            return Ok(None);
        };
        let mapped = window.one_of_all(range);
        Ok(mapped.map(|mapped| Self {
            map: mapped.map.clone(),
            range: range.clone(),
            made: mapped.access,
            access: first.access,
            call: window.calls.begin(pages_of(range)),
        }))
    }

    /// The maps that have a range, in its order.
    fn among(maps: &Maps, range: &Range<usize>) -> Result<Vec<Self>, NotMapped> {
        let mut parts = Vec::with_capacity(1);
        let mut at = range.start;
        while at < range.end {
            let window = maps.window(at).ok_or(NotMapped)?;
            let (mapped, run) = window.at(at).ok_or(NotMapped)?;
            let end = run.end.min(range.end);
            parts.push(Self {
                map: mapped.map.clone(),
                range: at..end,
                made: mapped.access,
                access: window.access(at).ok_or(NotMapped)?,
                call: window.calls.begin(pages_of(&(at..end))),
            });
            at = end;
        }
        Ok(parts)
    }
}

/// See [`Part::kept_offsets`].
pub(super) fn kept_offsets(map: &MmapRaw, range: &Range<usize>) -> Range<usize> {
    let (start, len) = (map.as_ptr() as usize, map.len());
    let end = (range.end - start).min(len);
    (range.start - start).min(end.saturating_sub(usize::from(!range.is_empty())))..end
}

/// The pages that have these addresses.
fn pages_of(range: &Range<usize>) -> Range<usize> {
    range.start / PAGE_SIZE * PAGE_SIZE..whole_pages(range.end)
}

/// True if any of the pages is mapped.
pub(crate) fn has_any(pages: &Range<usize>) -> bool {
    let maps = look();
    let mut below = maps.windows.range(..pages.end).rev();
    // From the last on: no two have an address in common.
    let over = below.by_ref().map(|(_, window)| window);
    let mut over = over.take_while(|window| window.range().end > pages.start);
    over.any(|window| {
        let part = common(window.range(), pages);
        window.uncovered(&part) != [part]
    })
}

/// Gives back the memory of calls that have used the window at an address, and have ended.
pub(crate) fn forget_ended_calls(address: usize) {
    if let Some(window) = look().window(address) {
        window.calls.forget_ended();
    }
}

/// Calls that the window at an address has memory for.
#[cfg(test)]
pub(crate) fn room_for_calls(address: usize) -> usize {
    look().window(address).unwrap().calls.room()
}

/// Bytes of a page of the map at an address.
pub(crate) fn page_size(address: usize) -> usize {
    let maps = look();
    maps.window(address).map_or(PAGE_SIZE, Window::page_size)
}

/// True if the pages are those that a map was made for, it has lost none, and all may be used alike: the map that
/// [`Taken::of`](super::Taken::of) takes.
pub(crate) fn is_one_map(pages: &Range<usize>, writable: bool) -> bool {
    let maps = look();
    let window = maps.window(pages.start);
    window.is_some_and(|window| window.exact_access(pages, writable).is_some())
}
