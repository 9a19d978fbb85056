//! Which pages to read before they are touched: the `Adaptive` policy.
//!
//! The page cache of a mapping tells [`ReadAhead`] of every touch that faults
//! on a page it had to read (a miss) or had read ahead (a first use), and is
//! told what to read now ([`Plan`]). Nothing else is known: once a page is
//! mapped, its touches are invisible, and a folio of up to [`FOLIO`] pages
//! becomes visible only once.
//!
//! ```text
//!   touch ── goes on with a run? ── yes ─► the stream moves on (stream.rs); its window
//!     │       (fit.rs)                     grows with what it has consumed (window.rs)
//!     ├ in a region most of which is touched, or expected to be, in any order?
//!     │       └ yes ─► the rest of the region, and the next one (density.rs)
//!     ├ goes on with a stride? ── yes ─► the stream moves on
//!     ├ prolongs a progression in the last misses? (history.rs)
//!     │       └ yes, long enough for the trust we have ─► new stream
//!     └ no ─► one page, nothing ahead
//! ```
//!
//! - A *run* has step 1 or -1 and is read in folios; any other step is a
//!   *stride* and is read in single pages, even where several of them fall
//!   into one 64 KiB block: bytes read are what a stride is measured by.
//! - Accesses past the end of the file come back at its front: all distances
//!   are taken modulo the file, so that a stream lives on over the wrap.
//! - What a run may have unused is bounded by what it has consumed (a quarter,
//!   later an eighth), so that however early it ends, little was read in vain.
//!   The price is a ramp: a run waits for its first blocks and has a megabyte
//!   ahead of it after 4 MiB, eight after 32. `Advice::Sequential` takes the largest window at
//!   once instead.
//! - Each small window of a run ends one page into a block. At this *seam* a
//!   sequential reader shows two touches in neighbouring pages, a reader that
//!   only looks into each block shows one, and stops being taken for a run. Large
//!   windows have a block that is read page by page: who skips one there reads records
//!   with gaps.
//! - Density asks which pages of a region are touched, not in which order: areas.rs
//!   remembers them for the areas that were touched last, texture.rs finds regular gaps,
//!   guess.rs learns whether expecting a region of some size came out right, and loans.rs
//!   has what may be read and not be used yet.
//! - Records (records.rs) are what lies around a touch out of the blue: it is read with that
//!   touch where it was touched around the last ones.
//! - Proof costs no I/O: where read-ahead was in vain, a progression has to be
//!   longer before it is believed (accuracy.rs), up to eight touches. So it is
//!   never off for good, and random access reads what it touches.
//!
//! Source of the problem, and of the rule that only a touch of the page itself
//! counts as a hit: the mmap_miss series (document 003). The accounting of
//! that series, as policies to compare with, is in `readahead/baseline.rs`.
//!
//! Locks: none here. `ReadAhead` is protected by the lock of the page cache
//! that owns it. No I/O and no new memory after it was made: it runs in the fault
//! handler. Of a file of 256 MiB or more it is 56 KiB, of one of a few pages 2 KiB.

mod accuracy;
mod areas;
mod baseline;
mod density;
mod fit;
mod guess;
mod history;
mod loans;
mod records;
mod stream;
mod texture;
mod window;

use core::ops::Range;

use crate::page::Advice;
use accuracy::Accuracy;
use areas::{Blocks, Pages};
pub use baseline::{Found, LOTS, MOST, MmapMiss, RaWindow};
use density::{Density, Room};
use fit::Fit;
use history::{History, Proof};
use records::Records;
use stream::Stream;

/// Pages of the largest folio, and its alignment. A folio never crosses a
/// multiple of it.
pub const FOLIO: u64 = 16;

/// Streams that one mapping can follow at a time.
const STREAMS: usize = 20;
/// The number of none.
const NO_STREAM: u8 = STREAMS as u8;

/// What the engine can afford at this touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pages a run may have ahead of its reader. Below two blocks a run reads
    /// the rest of its block and nothing in the background.
    pub max_window: u32,
    /// Pages of this mapping that may be in flight or unused, all streams
    /// together; zero stops read-ahead.
    pub max_ahead: u32,
    /// Pages of the file, a partial last one included. At least one.
    pub file_pages: u64,
    /// Single-page reads that keep the device busy: the window of a stride.
    pub queue_depth: u32,
}

/// What the touch met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Nothing cached: the page has to be read.
    Miss,
    /// A folio read ahead (perhaps still in flight) that nobody touched yet.
    FirstUse,
}

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Pages to read at once and to map together: the touched one and perhaps
    /// neighbours in its block. After a first use: the touched page alone,
    /// which is cached already.
    pub demand: Range<u64>,
    /// Pages to read in the background.
    pub ahead: Ahead,
}

/// Pages to read in the background. Pages that are cached already are to be
/// skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ahead {
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
pub struct AreaPages {
    /// The area's first page, in the file.
    start: u64,
    pages: Pages,
    /// Blocks whose pages are folios of their own: so that touches of each are seen.
    single: Blocks,
}

impl AreaPages {
    /// The folios to be read, in the file.
    pub fn folios(&self) -> impl Iterator<Item = Range<u64>> + '_ {
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
    pub fn len(&self) -> u64 {
        match self {
            Ahead::None => 0,
            Ahead::Run { pages, .. } => pages.end - pages.start,
            Ahead::Strided { count, .. } => u64::from(*count),
            Ahead::Area(area) => area.pages.count(),
        }
    }

    /// What of a run is to be read at a time: all that is not of the seam in one, cut
    /// into folios by its reader; pages of the seam one by one.
    pub fn folios_of(pages: &Range<u64>, seam: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (before, behind) = (pages.start..seam.start, seam.end..pages.end);
        let singles = seam.clone().map(|page| page..page + 1);
        [before]
            .into_iter()
            .chain(singles)
            .chain([behind])
            .filter(|pages| !pages.is_empty())
    }

    /// True if there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Plan {
    fn single(page: u64) -> Plan {
        Plan {
            demand: page..page + 1,
            ahead: Ahead::None,
        }
    }
}

/// One touch, as the parts of this module see it.
struct Event {
    page: u64,
    /// What a first use maps, or what a miss may read.
    folio: Range<u64>,
    touch: Touch,
    /// Pages of its block that were mapped before.
    mapped: Mapped,
    file_pages: u64,
}

impl Event {
    /// True if some pages of the touched page's block, from `next` up to it on a reader's
    /// way, were not mapped: the reader skipped them.
    fn has_skipped(&self, next: u64) -> bool {
        let (low, high) = (next.min(self.page), next.max(self.page));
        next / FOLIO == self.page / FOLIO
            && (low..=high).any(|page| page != self.page && !self.mapped.has(page))
    }
}

/// Which pages of a block are mapped, a bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mapped(u16);

impl Mapped {
    /// Adds a page of the file.
    pub fn add(&mut self, page: u64) {
        self.0 |= 1 << (page % FOLIO);
    }

    fn has(self, page: u64) -> bool {
        self.0 >> (page % FOLIO) & 1 != 0
    }
}

/// What a stream may do at one touch.
struct Allowance {
    /// Pages (steps) ahead at most, once fully ramped.
    cap: u32,
    /// Pages that may be planned now, of all that may be outstanding.
    room: u32,
    /// Whether the cap is to be used at once.
    at_once: bool,
    /// How well young runs of this mapping did, 0 to 255.
    trust: u8,
}

/// Read-ahead state of one mapping. All fields are protected by the lock of
/// the page cache that owns it.
pub struct ReadAhead {
    streams: [Stream; STREAMS],
    history: History,
    density: Density,
    /// None of a file that is no larger than an area.
    records: Option<Box<Records>>,
    accuracy: Accuracy,
    /// Touches seen, wrapping.
    clock: u32,
    /// Stream and pages of the last plan, until it is told what became of it.
    last: (u8, u32),
}

impl ReadAhead {
    /// No touch seen yet, of a file of so many pages.
    pub fn new(file_pages: u64) -> Self {
        ReadAhead {
            streams: [Stream::FREE; STREAMS],
            history: History::new(),
            density: Density::new(file_pages),
            records: (file_pages > areas::AREA).then(|| Box::new(Records::new())),
            accuracy: Accuracy::new(),
            clock: 0,
            last: (0, 0),
        }
    }

    /// Takes note of a touch of `page` and says what to read.
    ///
    /// `folio` is the extent that becomes mapped: for a first use the folio
    /// that was read ahead, with the neighbours mapped in the same go if any;
    /// for a miss the pages around it that are not cached, within its block,
    /// of which the caller then maps `demand`. `mapped` are the pages of its block that were
    /// mapped before.
    ///
    /// A touch that waits for I/O is told once, not again when it is retried.
    /// A touch of pages that were used before (cached, but not mapped) is not
    /// told. Fault-around should map such pages, and leave folios read ahead
    /// for their own first use: what is mapped unseen proves nothing.
    pub fn touch(
        &mut self,
        page: u64,
        folio: Range<u64>,
        touch: Touch,
        mapped: Mapped,
        advice: Advice,
        limits: &Limits,
    ) -> Plan {
        assert!(page < limits.file_pages && folio.contains(&page));
        let event = Event {
            page,
            folio: folio.start..folio.end.min(limits.file_pages),
            touch,
            mapped,
            file_pages: limits.file_pages,
        };
        self.clock = self.clock.wrapping_add(1);
        self.last.1 = 0;
        if touch == Touch::FirstUse {
            self.accuracy.mapped(event.folio.end - event.folio.start);
        }
        if advice == Advice::Random {
            self.count_use(&event, false);
            return Plan::single(page);
        }

        let known = self.find(&event);
        self.density.note(&event, self.clock);
        let records = self.records.as_mut();
        let density = &self.density;
        let begins =
            records.is_some_and(|records| records.note(&event, |page| density.area_of(page)));
        let follows = |(i, fit): (usize, Fit)| {
            matches!(fit, Fit::Next(_))
                && (self.streams[i].is_run() || self.density.is_stride(page))
        };
        if !known.is_some_and(follows)
            && advice == Advice::Normal
            && let Some(plan) = self.by_density(&event, limits)
        {
            self.count_use(&event, true);
            return plan;
        }
        if begins
            && known.is_none()
            && advice == Advice::Normal
            && let Some(plan) = self.by_record(&event, limits)
        {
            return plan;
        }
        self.count_use(&event, known.is_some_and(|(i, _)| self.streams[i].is_run()));
        let fresh = match known {
            None => self.detect(&event, advice, false),
            // A stride through the starts of other readers' runs (threads in
            // step, each in its part of the file) must not hide the runs.
            Some((i, _)) if self.streams[i].is_young_stride() => self.detect(&event, advice, true),
            Some(_) => None,
        };
        let (index, steps) = match (fresh, known) {
            (Some(index), _) => (index, 0),
            (None, Some((index, Fit::Next(steps)))) => (index, steps),
            (None, _) => return Plan::single(page),
        };
        let allowance = self.allowance(index, advice, limits);
        let stream = &mut self.streams[index];
        stream.stamp(self.clock);
        let plan = stream.advance(&event, steps, &allowance);
        self.last = (index as u8, plan.ahead.len() as u32);
        self.read(&event, &plan);
        let stream = &mut self.streams[index];
        if stream.prove() {
            self.accuracy.sample(self.streams[index].kind(), u8::MAX);
        }
        plan
    }

    #[inline(never)]
    fn by_density(&mut self, event: &Event, limits: &Limits) -> Option<Plan> {
        let room = Room {
            pages: u64::from(limits.max_ahead.saturating_sub(self.accuracy.outstanding)),
            window: u64::from(limits.max_window >> self.accuracy.shrink()),
            clock: self.clock,
        };
        let plan = self.density.plan(event, &room)?;
        self.read(event, &plan);
        self.last = (NO_STREAM, plan.ahead.len() as u32);
        Some(plan)
    }

    #[inline(never)]
    fn by_record(&mut self, event: &Event, limits: &Limits) -> Option<Plan> {
        let room = limits.max_ahead.saturating_sub(self.accuracy.outstanding);
        let reading = (self.records.as_ref()?).plan(event, u64::from(room))?;
        self.density.reads(event.page, &reading.pages, self.clock);
        let ahead = match reading.pages.is_empty() {
            true => Ahead::None,
            false => Ahead::Area(AreaPages {
                start: event.page - event.page % areas::AREA,
                pages: reading.pages,
                single: reading.single,
            }),
        };
        let plan = Plan {
            demand: reading.demand,
            ahead,
        };
        self.history.push(event.page);
        self.read(event, &plan);
        self.density.took(plan.demand.clone(), self.clock);
        self.last = (NO_STREAM, plan.ahead.len() as u32);
        Some(plan)
    }

    /// Takes note of what a miss maps.
    fn read(&mut self, event: &Event, plan: &Plan) {
        if event.touch == Touch::Miss {
            self.density.mapped(plan.demand.clone(), self.clock);
            if let Some(records) = &mut self.records {
                records.mapped(plan.demand.clone());
            }
        }
    }

    /// `pages` of the last plan's `ahead` are being read; the others were
    /// cached already, or there was no room for them, as from page `refused` on. Told once
    /// after each plan with something ahead, before the next touch.
    pub fn submitted(&mut self, pages: u32, refused: Option<u64>) {
        let (index, planned) = self.last;
        match self.streams.get_mut(usize::from(index)) {
            _ if planned == 0 => {}
            Some(stream) => stream.submitted(pages < planned),
            None => {
                if let Some(page) = refused {
                    self.density.refused(page);
                }
            }
        }
        self.last.1 = 0;
        self.accuracy.submitted(pages);
    }

    /// Pages that a plan demanded were not read: no memory, or somebody else was at work on
    /// them. If the touched page is one of them, the touch will be told again.
    pub fn unread(&mut self, pages: Range<u64>) {
        if !pages.is_empty() {
            self.density.unread(pages);
        }
    }

    /// `pages` that were read ahead were dropped untouched, by reclaim or by
    /// an unmap. Windows shrink by it: reclaim should take what its reader left
    /// behind, not what was just read.
    pub fn unused(&mut self, pages: u32) {
        self.accuracy.unused(pages);
    }

    /// Pages in flight or cached that were read ahead and not touched yet.
    pub fn outstanding(&self) -> u32 {
        self.accuracy.outstanding
    }

    /// Pages read ahead so far; those of a `demand` are not among them.
    pub fn readahead_pages(&self) -> u64 {
        self.accuracy.readahead_pages
    }

    /// Pages read ahead of which we know that they were used: whole folios of
    /// a run that went on, otherwise the touched page alone.
    pub fn readahead_used(&self) -> u64 {
        self.accuracy.readahead_used
    }

    /// Pages read ahead that were dropped untouched.
    pub fn readahead_unused(&self) -> u64 {
        self.accuracy.readahead_unused
    }

    fn count_use(&mut self, event: &Event, of_run: bool) {
        if event.touch == Touch::FirstUse {
            let pages = event.folio.end - event.folio.start;
            self.accuracy.used(if of_run { pages } else { 1 });
        }
    }

    /// The stream that `event` belongs to. Streams that the event refutes are
    /// closed, one that it may belong to remembers it.
    fn find(&mut self, event: &Event) -> Option<(usize, Fit)> {
        let mut best: Option<(usize, Fit)> = None;
        for index in 0..STREAMS {
            if self.streams[index].lapsed(self.clock, event.file_pages) {
                self.close(index);
            }
            match self.streams[index].fit(event) {
                None => {}
                Some(Fit::Refuted) => {
                    self.accuracy.sample(Kind::Run, 0);
                    self.streams[index] = Stream::FREE;
                }
                Some(fit) if best.is_some_and(|(_, other)| other.rank() <= fit.rank()) => {}
                Some(fit) => best = Some((index, fit)),
            }
        }
        if let Some((index, Fit::Perhaps(alternative))) = best {
            self.streams[index].remember(alternative);
            return None;
        }
        best
    }

    /// Starts a stream if `event` is reason enough for one.
    fn detect(&mut self, event: &Event, advice: Advice, runs_only: bool) -> Option<usize> {
        if advice == Advice::Sequential {
            let start = event.touch == Touch::Miss && !runs_only;
            return start.then(|| self.open(Proof::start(), event));
        }
        if event.touch == Touch::FirstUse && event.folio.end - event.folio.start > 1 {
            // The folio hides the touches in it: nothing to learn a step from.
            return None;
        }
        let accuracy = &self.accuracy;
        let proof = self
            .history
            .progression(event.page, event.file_pages, runs_only, |proof| {
                proof.terms >= window::terms_needed(proof, accuracy)
            });
        self.history.push(event.page);
        let file_start = event.page == 0 && event.touch == Touch::Miss && !runs_only;
        let proof = match proof {
            Some(proof) => proof,
            None if file_start => Proof::start(),
            None => return None,
        };
        Some(self.open(proof, event))
    }

    /// Puts a new stream in the place of the one that was quiet for longest.
    fn open(&mut self, proof: Proof, event: &Event) -> usize {
        let clock = self.clock;
        let index = (0..STREAMS)
            .max_by_key(|&i| self.streams[i].age(clock))
            .expect("there are streams");
        self.close(index);
        self.streams[index] = Stream::new(&proof, event);
        index
    }

    fn close(&mut self, index: usize) {
        self.judge(index);
        self.streams[index] = Stream::FREE;
    }

    fn judge(&mut self, index: usize) {
        if let Some(share) = self.streams[index].judge() {
            self.accuracy.sample(self.streams[index].kind(), share);
        }
    }

    fn allowance(&self, index: usize, advice: Advice, limits: &Limits) -> Allowance {
        let most = match self.streams[index].kind() {
            Kind::Run => limits.max_window,
            Kind::Stride => limits.queue_depth,
        };
        // Half of what there is: the other half is for streams to come.
        let most = most.min(limits.max_ahead / 2);
        Allowance {
            cap: most >> self.accuracy.shrink(),
            room: limits.max_ahead.saturating_sub(self.accuracy.outstanding),
            at_once: advice == Advice::Sequential,
            trust: self.accuracy.trust(Kind::Run),
        }
    }
}

/// What is measured apart: runs waste by the window, strides by the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Run,
    Stride,
}
