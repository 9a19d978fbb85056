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

    /// The pages in the file, in the order in which they are to be read: ranges to be cut into
    /// folios at block borders and at both ends.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let view = self.view;
        self.ahead.ranges().flat_map(move |range| {
            let runs = view.map(|view| view.runs(range.clone()));
            let whole = runs.is_none().then_some(range);
            runs.into_iter().flatten().chain(whole)
        })
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

    /// What of a run is to be read at a time: all that is not of the seam in one, cut
    /// into folios by its reader; pages of the seam one by one.
    fn folios_of(
        pages: &Range<u64>,
        seam: &Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + use<> {
        let (before, behind) = (pages.start..seam.start, seam.end..pages.end);
        let singles = seam.clone().map(|page| page..page + 1);
        [before]
            .into_iter()
            .chain(singles)
            .chain([behind])
            .filter(|pages| !pages.is_empty())
    }

    /// True if there is nothing to read.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let run = match self {
            Ahead::Run { pages, seam } => Some(Ahead::folios_of(pages, seam)),
            _ => None,
        };
        let area = match self {
            Ahead::Area(area) => Some(area.folios()),
            _ => None,
        };
        let (first, stride, count) = match self {
            Ahead::Strided {
                first,
                stride,
                count,
            } => (*first, *stride, *count),
            _ => (0, 0, 0),
        };
        let steps = (0..i64::from(count)).map(move |step| {
            let page = first.wrapping_add_signed(stride * step);
            page..page + 1
        });
        let in_ranges = run.into_iter().flatten().chain(area.into_iter().flatten());
        in_ranges.chain(steps)
    }
}
