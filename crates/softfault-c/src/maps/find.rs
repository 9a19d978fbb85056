//! The maps of a range.

use super::window::Access;
use super::{Arc, MmapRaw, NotMapped, Range, look};

/// A part of a range, and the map that has it.
pub(crate) struct Part {
    pub(crate) map: Arc<MmapRaw>,
    /// Its addresses.
    pub(crate) range: Range<usize>,
    /// True if it is all that the map was made for.
    pub(crate) is_whole: bool,
    pub(crate) access: Access,
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
            let (mapped, piece) = window.piece_at(at).ok_or(NotMapped)?;
            let end = piece.end.min(range.end);
            parts.push(Self {
                map: mapped.map.clone(),
                range: at..end,
                is_whole: mapped.is_whole() && *mapped.range() == (at..end),
                access: mapped.access,
            });
            at = end;
        }
        Ok(parts)
    }
}
