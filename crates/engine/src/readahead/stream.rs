//! One stream: the place of its reader, and the plan ahead of it.
//!
//! Distances count *steps*: pages for a run, strides for a stride, always in
//! the reader's direction and modulo the file.
//!
//! ```text
//!            consumed                  ahead
//!   |----------------------------|===============|
//!                                next            frontier: planned from here
//! ```

use super::history::Proof;
use super::window::{WIDE, run_window, stride_window};
use super::{Ahead, Allowance, Event, FOLIO, Kind, Planned, Touch};
use core::ops::Range;

/// Steps of a stride after which its touches no longer look like the starts
/// of other streams.
const GROWN: u32 = 32;

/// Pages of a window from which one of its blocks is read page by page: all touches of the
/// reader in it are seen.
pub(super) const SEAM: u64 = 16 * FOLIO;

/// A window lost to reclaim halves the next ones; this many windows kept undo
/// it, so that little is lost to trying again.
const LOSS: u8 = 32;
const MOST_LOSSES: u8 = 6 * LOSS;

/// The stream exists.
pub(super) const LIVE: u8 = 1;
/// Its first windows have been judged.
const JUDGED: u8 = 2;
/// It was seen to pass the end of the file: its windows may do so.
const WRAPS: u8 = 4;
/// The page expected next, in the block of the last touch, was not mapped then.
const OPEN: u8 = 16;
/// Some planned pages were cached already, and may be mapped: its reader
/// may skip it without a fault.
pub(super) const HOLES: u8 = 8;

/// All fields are protected by the lock of the page cache.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// Page expected next.
    pub(super) next: u64,
    /// 1 or -1 for a run.
    pub(super) stride: i32,
    /// Steps taken, saturating.
    consumed: u32,
    /// Clock of the last touch.
    stamp: u32,
    /// Clock of its first touch: no two streams have the same.
    pub(super) born: u32,
    /// Steps planned from `next` on.
    pub(super) ahead: u16,
    /// Steps from `next` to a place where the reader may be instead, as a
    /// touch ahead of it showed; zero if there is none.
    pub(super) alternative: u16,
    /// Pages planned so far, saturating.
    planned: u16,
    /// Pages that the last touch mapped.
    mapped: u16,
    /// Windows lost to reclaim lately, each counted [`LOSS`] times.
    strain: u8,
    flags: u8,
}

impl Stream {
    pub(super) const FREE: Stream = Stream {
        next: 0,
        stride: 1,
        consumed: 0,
        stamp: 0,
        born: 0,
        ahead: 0,
        alternative: 0,
        planned: 0,
        mapped: 0,
        strain: 0,
        flags: 0,
    };

    /// A stream whose reader is at `event`, to be advanced by it.
    pub(super) fn new(proof: &Proof, event: &Event, clock: u32) -> Stream {
        Stream {
            born: clock,
            next: event.page,
            stride: proof.stride,
            consumed: proof.terms - 1,
            flags: LIVE | if proof.wraps { WRAPS } else { 0 },
            ..Stream::FREE
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.stride {
            1 | -1 => Kind::Run,
            _ => Kind::Stride,
        }
    }

    pub(super) fn is_run(&self) -> bool {
        self.kind() == Kind::Run
    }

    /// True if a call that has brought `pages` in is of this reader, which goes forward: it begins where the reader was, or the
    /// call's own touches have moved the reader on, at most as far as a touch maps pages behind it.
    pub(super) fn goes_on_with(&self, pages: &Range<u64>, clock: u32) -> bool {
        let begins = (pages.start..=pages.start + 1).contains(&self.next);
        let moved = u64::from(self.age(clock)) <= 4 + (pages.end - pages.start) / FOLIO
            && (pages.start..pages.end + SEAM).contains(&self.next);
        self.is(LIVE) && self.stride == 1 && (begins || moved)
    }

    /// The reader of a run that goes forward has passed the pages before `page`, which is not before the next.
    pub(super) fn pass_to(&mut self, page: u64) {
        let passed = saturate(page - self.next);
        self.next = page;
        self.consumed = self.consumed.saturating_add(u32::from(passed));
        self.ahead = self.ahead.saturating_sub(passed);
    }

    pub(super) fn is_young_stride(&self) -> bool {
        !self.is_run() && self.consumed < GROWN
    }

    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn stamp(&mut self, clock: u32) {
        self.stamp = clock;
    }

    /// Touches since its own last one.
    pub(super) fn age(&self, clock: u32) -> u32 {
        if self.is(LIVE) {
            clock.wrapping_sub(self.stamp)
        } else {
            u32::MAX
        }
    }

    /// `holes`: a plan was not read as a whole.
    pub(super) fn submitted(&mut self, holes: bool) {
        if holes {
            self.flags |= HOLES;
        } else {
            self.flags &= !HOLES;
        }
    }

    /// So many pages, all of a plan, are not going to be read.
    pub(super) fn withdrawn(&mut self, pages: u64) {
        let pages = saturate(pages);
        self.ahead = self.ahead.saturating_sub(pages);
        self.planned = self.planned.saturating_sub(pages);
    }

    /// True if nothing came for so long that the page it expects would be
    /// touched by chance: in a file of n pages random access meets any of them
    /// once in n touches.
    pub(super) fn lapsed(&self, clock: u32, file_pages: u64) -> bool {
        let chances = if self.is_run() { 16 } else { 64 };
        let patience = (file_pages / chances).max(32);
        self.is(LIVE) && u64::from(self.age(clock)) > patience
    }

    /// The touch that a run was not expected to make, but that may be its
    /// reader's: believed if the next one follows it.
    pub(super) fn remember(&mut self, alternative: u16) {
        self.alternative = alternative;
    }

    /// True once, when enough steps were taken to call the stream real.
    pub(super) fn prove(&mut self) -> bool {
        let enough = if self.is_run() { 64 } else { 16 };
        let proven = self.consumed >= enough && self.planned > 0 && !self.is(JUDGED);
        if proven {
            self.flags |= JUDGED;
        }
        proven
    }

    /// The share of 255 of the planned pages that the reader is known to have
    /// reached; once, and not for a stream that proved itself.
    pub(super) fn judge(&mut self) -> Option<u8> {
        if !self.is(LIVE) || self.is(JUDGED) || self.planned == 0 {
            return None;
        }
        self.flags |= JUDGED;
        // Of the last folio, the touched page alone is known to be used.
        let unseen = self.ahead.saturating_add(self.mapped.saturating_sub(1));
        let reached = self.planned.saturating_sub(unseen);
        Some((u32::from(reached) * 255 / u32::from(self.planned)) as u8)
    }

    /// Pages that `event` maps from its page on, in the reader's direction, if
    /// all of its folio is mapped.
    pub(super) fn mapped_by(&self, event: &Event) -> u64 {
        if self.stride > 0 {
            event.folio.end - event.page
        } else {
            event.page + 1 - event.folio.start
        }
    }

    /// Moves on to `event`, `steps` past `next`, and plans the next reads.
    pub(super) fn advance(&mut self, event: &Event, steps: u64, allow: &Allowance) -> Planned {
        // Steps planned from the touched page on, this one included.
        let planned = u64::from(self.ahead).saturating_sub(steps);
        let lost = event.touch == Touch::Miss && planned > 0;
        if lost {
            self.strain = (self.strain + LOSS).min(MOST_LOSSES);
        }
        let planned = if lost { 0 } else { planned };
        self.alternative = 0;
        let cap = (allow.cap >> self.strain.div_ceil(LOSS)).min(u32::from(u16::MAX) / 2);
        let plan = if self.is_run() {
            self.advance_run(event, planned, cap, allow)
        } else {
            self.advance_stride(event, planned, cap, allow)
        };
        let extra = plan.demand.end - plan.demand.start - 1 + plan.ahead.len();
        self.planned = self.planned.saturating_add(saturate(extra));
        if !plan.ahead.is_empty() && !lost {
            self.strain = self.strain.saturating_sub(1);
        }
        plan
    }

    fn advance_run(&mut self, event: &Event, planned: u64, cap: u32, allow: &Allowance) -> Planned {
        let consumed = self.consumed.saturating_add(1);
        // Pages that may be read beyond the touched one.
        let window = if allow.at_once {
            cap
        } else {
            run_window(consumed, allow.trust).min(cap)
        };
        let (window, room) = (u64::from(window), u64::from(allow.room));
        // A run from a first touch alone waits for no more than its page: the
        // next touch shows whether it is one.
        let bold = consumed > 1 || allow.at_once;
        let mapped = match event.touch {
            Touch::FirstUse => self.mapped_by(event),
            Touch::Miss if bold => self.mapped_by(event).min(1 + window.min(room)),
            Touch::Miss => 1,
        };
        let demand = match event.touch {
            Touch::FirstUse => event.page..event.page + 1,
            Touch::Miss if self.stride > 0 => event.page..event.page + mapped,
            Touch::Miss => event.page + 1 - mapped..event.page + 1,
        };
        let room = room - (demand.end - demand.start - 1);
        let ahead = planned.saturating_sub(mapped);
        let target = (window + 1).saturating_sub(mapped);
        let want = target.saturating_sub(ahead).min(room);

        // Windows are planned in halves or more, and not below a block.
        let worth = (want * 2 >= target || ahead < FOLIO) && (want >= FOLIO || !bold);
        let skip = mapped + ahead;
        let run = if worth && want > 0 {
            self.run_from(event, skip, want, bold)
        } else {
            None
        };
        let run_pages = run.as_ref().map_or(0, |run| run.end - run.start);

        self.next = step(event.page, self.stride, mapped, event.file_pages);
        self.flags &= !OPEN;
        if self.next / FOLIO == event.page / FOLIO && !event.mapped.has(self.next) {
            self.flags |= OPEN;
        }
        if event.touch == Touch::Miss {
            let edge = if self.stride > 0 { 0 } else { FOLIO - 1 };
            self.submitted(mapped == self.mapped_by(event) && self.next % FOLIO != edge);
        }
        self.consumed = self.consumed.saturating_add(u32::from(saturate(mapped)));
        self.ahead = saturate(ahead + run_pages);
        self.mapped = saturate(mapped);
        Planned {
            demand,
            ahead: run.map_or(Ahead::None, |pages| Ahead::Run {
                seam: self.seam_of(&pages),
                pages,
                stream: self.born,
            }),
        }
    }

    /// Up to `want` pages from `skip` pages past the touch, in the file. Ends
    /// with the first page of a block where it can: the seam.
    fn run_from(
        &self,
        event: &Event,
        skip: u64,
        want: u64,
        seam: bool,
    ) -> Option<core::ops::Range<u64>> {
        if self.stride > 0 {
            let first = event.page + skip;
            let last = first + want - 1;
            let last = match (last >= event.file_pages - 1, seam) {
                (true, _) => event.file_pages - 1,
                (false, true) if want >= SEAM => ((last + 1) & !(FOLIO - 1)) - 1,
                (false, true) => last & !(FOLIO - 1),
                (false, false) => last,
            };
            (first <= last).then(|| first..(last + 1).min(event.file_pages))
        } else {
            let first = event.page.checked_sub(skip)?;
            let last = match (first.checked_sub(want - 1), seam) {
                (None | Some(0), _) => 0,
                (Some(last), true) if want >= SEAM => last.next_multiple_of(FOLIO),
                (Some(last), true) => last | (FOLIO - 1),
                (Some(last), false) => last,
            };
            (last <= first).then(|| last..first + 1)
        }
    }

    /// True if a touch in another block leaves out the unmapped rest of the last one.
    pub(super) fn skips_rest(&self, event: &Event) -> bool {
        self.is(OPEN) && event.page / FOLIO != self.next / FOLIO
    }

    /// The block of a large window that is read page by page: any, so that no gap between
    /// the pages that are touched is always somewhere else. None of most windows of a run that has
    /// gone on for long: the huge page of such a block is not moved to the map as a whole.
    fn seam_of(&self, run: &core::ops::Range<u64>) -> core::ops::Range<u64> {
        let drawn = run.start.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let is_seldom = self.consumed >= WIDE && drawn >> 61 != 0;
        if run.end - run.start < SEAM || is_seldom {
            return run.start..run.start;
        }
        let first = run.start.next_multiple_of(FOLIO);
        let blocks = run.end / FOLIO - first / FOLIO;
        let drawn = (drawn >> 32) % blocks;
        first + drawn * FOLIO..first + (drawn + 1) * FOLIO
    }

    fn advance_stride(
        &mut self,
        event: &Event,
        planned: u64,
        cap: u32,
        allow: &Allowance,
    ) -> Planned {
        let stride = i64::from(self.stride);
        let (page, file_pages) = (event.page as i64, event.file_pages as i64);
        if !(0..file_pages).contains(&(page - stride)) {
            self.flags |= WRAPS;
        }
        self.consumed = self.consumed.saturating_add(1);
        self.mapped = 1;
        self.next = step(event.page, self.stride, 1, event.file_pages);
        let mut ahead = planned.saturating_sub(1);

        // Not once round the file: those pages are planned already.
        let lap = (event.file_pages / stride.unsigned_abs()).saturating_sub(1);
        let target = u64::from(stride_window(self.consumed).min(cap)).min(lap);
        let want = target.saturating_sub(ahead).min(u64::from(allow.room));
        let first = page + (ahead as i64 + 1) * stride;
        let inside = (0..file_pages).contains(&first);
        let mut plan = Planned::single(event.page);
        if want > 0 && want * 4 >= target && (inside || self.is(WRAPS)) {
            let first = first.rem_euclid(file_pages);
            let to_the_end = if stride > 0 {
                (file_pages - 1 - first) / stride
            } else {
                first / -stride
            };
            let count = want.min(to_the_end as u64 + 1);
            ahead += count;
            plan.ahead = Ahead::Strided {
                first: first as u64,
                stride,
                count: count as u32,
                stream: self.born,
            };
        }
        self.ahead = saturate(ahead);
        plan
    }
}

/// `steps` from `page`, modulo the file.
fn step(page: u64, stride: i32, steps: u64, file_pages: u64) -> u64 {
    (page as i64 + i64::from(stride) * steps as i64).rem_euclid(file_pages as i64) as u64
}

pub(super) fn saturate(pages: u64) -> u16 {
    u16::try_from(pages).unwrap_or(u16::MAX)
}
