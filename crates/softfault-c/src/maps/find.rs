//! The maps of a range.

use super::window::Access;
use super::{Arc, MmapRaw, NotMapped, Range, common, look};

/// A part of a range, and the map that has it.
pub(crate) struct Part {
    pub(crate) map: Arc<MmapRaw>,
    /// Its addresses.
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
    /// As the map was made, without later mprotect.
    pub(crate) made: Access,
}

impl Part {
    /// The offsets in the map, as far as that has bytes: a file may end in the middle of its last page.
    pub(crate) fn offsets(&self) -> Range<usize> {
        let (start, len) = (self.map.as_ptr() as usize, self.map.len());
        let offset = |address: usize| (address - start).min(len);
        offset(self.range.start)..offset(self.range.end)
    }

    /// The maps that have a range, in its order.
    pub(crate) fn of(range: &Range<usize>) -> Result<Vec<Self>, NotMapped> {
        let maps = look();
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
            });
            at = end;
        }
        Ok(parts)
    }
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

/// True if the pages are those that a map was made for, and it has lost none.
pub(crate) fn is_one_map(pages: &Range<usize>) -> bool {
    let maps = look();
    let window = maps.window(pages.start);
    window.is_some_and(|window| window.exact(pages).is_some())
}
