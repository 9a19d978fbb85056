//! Whether a touch belongs to a stream.

use super::stream::{HOLES, LIVE, Stream, saturate};
use super::{Event, FOLIO, Touch};

/// Steps behind `next` that still belong to a stride: several threads that
/// share one may come in any order.
const LATE: u64 = 32;

/// How a touch relates to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// The reader is this many steps past `next`. Not zero where pages in
    /// between were mapped already and so are not seen.
    Next(u64),
    /// Where the reader would be next if this touch was its own.
    Perhaps(u16),
    /// A late touch of a stride, planned long ago.
    Behind,
    /// The reader left out pages that a run reads.
    Refuted,
}

impl Fit {
    /// Less is better.
    pub(super) fn rank(self) -> u8 {
        match self {
            Fit::Next(0) => 0,
            Fit::Next(_) => 1,
            Fit::Behind => 2,
            Fit::Perhaps(_) | Fit::Refuted => 3,
        }
    }
}

impl Stream {
    /// How `event` relates to this stream, if at all.
    pub(super) fn fit(&self, event: &Event) -> Option<Fit> {
        if !self.is(LIVE) {
            None
        } else if self.next == event.page {
            Some(Fit::Next(0))
        } else if self.is_run() {
            self.fit_run(event)
        } else {
            self.fit_stride(event)
        }
    }

    fn fit_run(&self, event: &Event) -> Option<Fit> {
        let steps = steps(self.next, event.page, self.stride, event.file_pages)?;
        let mapped = self.mapped_by(event);
        if event.touch == Touch::FirstUse && event.folio.contains(&self.next) {
            return Some(Fit::Refuted);
        }
        let is_near = 0 < steps && steps < FOLIO;
        if is_near && (event.has_skipped(self.next) || self.skips_rest(event)) {
            return Some(Fit::Refuted);
        }
        // Between `next` and here all was mapped: entered at the folio's edge,
        // and there was something cached to skip.
        let at_the_edge = match event.touch {
            Touch::Miss => true,
            Touch::FirstUse => mapped == event.folio.end - event.folio.start,
        };
        if self.is(HOLES) && at_the_edge && steps <= FOLIO {
            return Some(Fit::Next(steps));
        }
        if steps == u64::from(self.alternative) && steps != 0 {
            return Some(Fit::Next(steps));
        }
        if steps < u64::from(self.ahead) + FOLIO {
            let mapped = if event.touch == Touch::Miss {
                1
            } else {
                mapped
            };
            return Some(Fit::Perhaps(saturate(steps + mapped)));
        }
        None
    }

    fn fit_stride(&self, event: &Event) -> Option<Fit> {
        if let Some(steps) = steps(self.next, event.page, self.stride, event.file_pages)
            && steps <= u64::from(self.ahead) + 2
        {
            return Some(Fit::Next(steps));
        }
        // From the touch to `next`: a stride of half of 2^32 pages has no opposite.
        let late = steps(event.page, self.next, self.stride, event.file_pages)?;
        (late <= LATE).then_some(Fit::Behind)
    }
}

/// Steps of `stride` from one page to another; none if it is not on the way.
fn steps(next: u64, page: u64, stride: i32, file_pages: u64) -> Option<u64> {
    // The file may have been longer.
    let (next, page) = (next % file_pages, page % file_pages);
    let (from, to) = if stride > 0 {
        (next, page)
    } else {
        (page, next)
    };
    let pages = if to >= from {
        to - from
    } else {
        to + file_pages - from
    };
    let stride = u64::from(stride.unsigned_abs());
    pages.is_multiple_of(stride).then(|| pages / stride)
}
