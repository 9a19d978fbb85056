//! What is to be read ahead.

use super::FOLIO;
use super::areas::{Blocks, Pages};
use super::view::View;
use core::ops::Range;

/// Pages to read in the background. Pages that are cached already are to be
/// skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reads {
    /// In logical pages, if there is a view.
    pub(super) ahead: Ahead,
    pub(super) view: Option<View>,
}

impl Reads {
    /// How many pages that is.
    pub fn len(&self) -> u64 {
        self.ahead.len()
    }

    /// True if it is all but certain to be used: it may take more of memory.
    pub fn is_sure(&self) -> bool {
        matches!(&self.ahead, Ahead::Area(area) if area.is_sure)
    }

    /// True if there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the pages in the file to `take`, in the order in which they are to be read, until that refuses some: ranges
    /// to be cut into folios at block borders and at both ends. The first page of what was refused.
    ///
    /// No iterator, since those take much of the fault handler's stack.
    pub fn refused_by(&self, mut take: impl FnMut(Range<u64>) -> bool) -> Option<u64> {
        let mut refused = |pages: Range<u64>| (!take(pages.clone())).then_some(pages.start);
        match &self.view {
            None => self.ahead.find(&mut refused),
            Some(view) => self
                .ahead
                .find(&mut |pages| view.runs(pages).find_map(&mut refused)),
        }
    }
}

/// What a part of read-ahead would have read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Nothing.
    None,
    /// All of `pages`, cut into folios at block borders and at both ends of
    /// the range (which is what makes the seam). If it lies below `demand`,
    /// the reader comes from above.
    Run {
        /// Pages, in the file.
        pages: Range<u64>,
        /// Those of them that are folios of their own.
        seam: Range<u64>,
    },
    /// Single-page folios at `first`, `first + stride`, ..., all in the file.
    Strided {
        /// First page, the one that will be touched first.
        first: u64,
        /// Pages from one to the next; may be negative.
        stride: i64,
        /// How many.
        count: u32,
    },
    /// Pages of a dense area.
    Area(AreaPages),
}

/// Some pages of an area of 512, in folios.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AreaPages {
    /// The area's first page, in the file.
    pub(super) start: u64,
    pub(super) pages: Pages,
    /// Blocks whose pages are folios of their own: so that touches of each are seen.
    pub(super) single: Blocks,
    /// All but certain to be touched.
    pub(super) is_sure: bool,
}

impl AreaPages {
    /// The folios to be read, in the file.
    fn folios(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut next = 0;
        core::iter::from_fn(move || {
            let run = self.pages.run_from(next)?;
            let block = run.start - run.start % FOLIO + FOLIO;
            let end = match self.single.have(run.start) {
                true => run.start + 1,
                false => run.end.min(block),
            };
            next = end;
            Some(self.start + run.start..self.start + end)
        })
    }
}

impl Ahead {
    /// How many pages that is.
    pub(super) fn len(&self) -> u64 {
        match self {
            Ahead::None => 0,
            Ahead::Run { pages, .. } => pages.end - pages.start,
            Ahead::Strided { count, .. } => u64::from(*count),
            Ahead::Area(area) => area.pages.count(),
        }
    }

    /// True if there is nothing to read.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What `found` says of the first range of which it says something. Of a run, all that is not of the seam is one
    /// range, to be cut into folios by its reader; pages of the seam come one by one.
    #[inline(never)]
    fn find(&self, found: &mut dyn FnMut(Range<u64>) -> Option<u64>) -> Option<u64> {
        match self {
            Ahead::None => None,
            Ahead::Run { pages, seam } => {
                let mut found = |pages: Range<u64>| match pages.is_empty() {
                    true => None,
                    false => found(pages),
                };
                found(pages.start..seam.start)
                    .or_else(|| (seam.clone()).find_map(|page| found(page..page + 1)))
                    .or_else(|| found(seam.end..pages.end))
            }
            Ahead::Strided {
                first,
                stride,
                count,
            } => (0..i64::from(*count)).find_map(|step| {
                let page = first.wrapping_add_signed(stride * step);
                found(page..page + 1)
            }),
            Ahead::Area(area) => area.folios().find_map(found),
        }
    }
}
