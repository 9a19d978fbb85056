//! The pages to read ahead.

use super::FOLIO;
use super::areas::{Blocks, Pages};
use super::view::View;
use core::ops::Range;

/// Pages to read in the background. Pages that are cached already are to be
/// skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

    /// The next pages in the file, in the order in which they are to be read: a range to be cut into folios at block
    /// borders and at both ends. No iterator: those would lie on the fault handler's stack while the pages are read.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Range<u64>> {
        let Some(view) = &self.view else {
            return self.ahead.next(&mut cursor.step);
        };
        if cursor.rest.is_empty() {
            cursor.rest = self.ahead.next(&mut cursor.step)?;
        }
        Some(view.take_run(&mut cursor.rest))
    }

    /// After a page that is a folio of its own: this page and those behind it, in the same block, that are folios of their own,
    /// too.
    #[inline(never)]
    pub fn singles(&self, page: u64, cursor: &mut Cursor) -> Range<u64> {
        let mut end = page + 1;
        while !end.is_multiple_of(FOLIO) {
            let mut further = cursor.clone();
            if self.next(&mut further) != Some(end..end + 1) {
                break;
            }
            *cursor = further;
            end += 1;
        }
        page..end
    }
}

/// How far [`Reads::next`] has got.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    /// See `Ahead`.
    step: u64,
    /// Logical pages that are still to be looked up in the view.
    rest: Range<u64>,
}

/// The pages that a part of read-ahead plans to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Nothing.
    #[default]
    None,
    /// All of `pages`, cut into folios at block borders and at both ends of
    /// the range (which makes the seam). If it lies below `demand`,
    /// the reader comes from above.
    Run {
        /// Pages, in the file.
        pages: Range<u64>,
        /// Those of them that are folios of their own.
        seam: Range<u64>,
        /// The stream that planned it: `Stream::born`.
        stream: u32,
    },
    /// Single-page folios at `first`, `first + stride`, ..., all in the file.
    Strided {
        /// First page, the one that will be touched first.
        first: u64,
        /// Pages from one to the next; may be negative.
        stride: i64,
        /// How many.
        count: u32,
        /// As of a run.
        stream: u32,
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
    /// The next folio to be read, in the file, from a page of the area on.
    fn folio_from(&self, next: &mut u64) -> Option<Range<u64>> {
        let run = self.pages.run_from(*next)?;
        let block = run.start - run.start % FOLIO + FOLIO;
        let end = match self.single.have(run.start) {
            true => run.start + 1,
            false => run.end.min(block),
        };
        *next = end;
        Some(self.start + run.start..self.start + end)
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

    /// The next pages. Of a run, all that is not of the seam is one range, to be cut into folios by its reader; pages of
    /// the seam come one by one.
    fn next(&self, step: &mut u64) -> Option<Range<u64>> {
        match self {
            Ahead::None => None,
            Ahead::Run { pages, seam, .. } => loop {
                let at = *step;
                *step += 1;
                let page = (seam.start + at).wrapping_sub(1);
                let part = match at {
                    0 => pages.start..seam.start,
                    _ if page < seam.end => page..page + 1,
                    _ if page == seam.end => seam.end..pages.end,
                    _ => return None,
                };
                if !part.is_empty() {
                    return Some(part);
                }
            },
            Ahead::Strided { count, .. } if *step >= u64::from(*count) => None,
            Ahead::Strided { first, stride, .. } => {
                let page = first.wrapping_add_signed(stride * *step as i64);
                *step += 1;
                Some(page..page + 1)
            }
            Ahead::Area(area) => area.folio_from(step),
        }
    }
}
