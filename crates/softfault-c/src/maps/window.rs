//! The maps of one window.

use super::kept::KeptRange;
use super::without;
use crate::access::whole_pages;
use core::ops::Range;
use softfault::MmapRaw;
use std::sync::Arc;

/// What a map is, and may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// A change of it is a change of its file, and of nobody's memory but its own.
    pub(crate) shared: bool,
    pub(crate) writable: bool,
}

/// A map, and what is left of it. Protected by the lock of the table.
pub(crate) struct Mapped {
    pub(super) map: Arc<MmapRaw>,
    /// The pages that were asked for. Immutable.
    range: Range<usize>,
    /// Those that are left, by address.
    pub(super) pieces: Vec<Range<usize>>,
    /// Immutable.
    pub(super) access: Access,
}

impl Mapped {
    pub(super) fn new(map: MmapRaw, asked: usize, access: Access) -> Self {
        let start = map.as_ptr() as usize;
        let range = start..start + whole_pages(asked);
        Self {
            map: Arc::new(map),
            pieces: vec![range.clone()],
            range,
            access,
        }
    }

    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// True if nothing of it was unmapped.
    pub(super) fn is_whole(&self) -> bool {
        self.pieces.first() == Some(&self.range)
    }
}

/// The addresses that no other map has, and the maps there. Protected by the lock of the table.
pub(crate) struct Window {
    /// Immutable.
    range: Range<usize>,
    pub(super) maps: Vec<Mapped>,
    pub(super) kept: Vec<KeptRange>,
}

impl Window {
    pub(super) fn new(range: Range<usize>) -> Self {
        Self {
            range,
            maps: Vec::new(),
            kept: Vec::new(),
        }
    }

    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }

    pub(super) fn enter(&mut self, mapped: Mapped) {
        self.maps.push(mapped);
    }

    /// The map that has most of the pages from `at` on, and its piece.
    pub(super) fn piece_at(&self, at: usize) -> Option<(&Mapped, &Range<usize>)> {
        let pieces = self.maps.iter().flat_map(|mapped| {
            let pieces = mapped.pieces.iter();
            pieces.map(move |piece| (mapped, piece))
        });
        let there = pieces.filter(|(_, piece)| piece.contains(&at));
        there.max_by_key(|(_, piece)| piece.end)
    }

    /// What of some pages no map has.
    pub(super) fn uncovered(&self, pages: &Range<usize>) -> Vec<Range<usize>> {
        let mut rest = vec![pages.clone()];
        for piece in self.maps.iter().flat_map(|mapped| &mapped.pieces) {
            rest = without(&rest, piece);
        }
        rest
    }

    /// Takes pages out, each of one map that has it: of that which has these and no others, if there is one. Answers the
    /// maps of which nothing is left. All of the pages are mapped.
    pub(super) fn cut(&mut self, pages: &Range<usize>) -> Vec<Mapped> {
        let exact = self
            .maps
            .iter()
            .position(|mapped| mapped.pieces[..] == [pages.clone()]);
        if let Some(exact) = exact {
            return vec![self.maps.remove(exact)];
        }
        let mut rest = vec![pages.clone()];
        // The last that was mapped goes first.
        for mapped in self.maps.iter_mut().rev() {
            let had = mapped.pieces.clone();
            for part in &rest {
                mapped.pieces = without(&mapped.pieces, part);
            }
            for piece in &had {
                rest = without(&rest, piece);
            }
        }
        let (gone, left) = core::mem::take(&mut self.maps)
            .into_iter()
            .partition(|mapped| mapped.pieces.is_empty());
        self.maps = left;
        gone
    }
}
