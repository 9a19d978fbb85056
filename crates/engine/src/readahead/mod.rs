//! Which pages to read before they are touched: the `Adaptive` policy.
//!
//! The page cache of a mapping tells [`ReadAhead`] of every touch that faults
//! on a page it had to read (a miss) or had read ahead (a first use), and is
//! told which pages to read now ([`Plan`]). Nothing else is known: once a page is
//! mapped, its touches are invisible, and a folio of up to [`FOLIO`] pages
//! becomes visible only once.
//!
//! ```text
//!   touch ── goes on with a run? ── yes ─► the stream moves on (stream.rs); its window
//!     │       (fit.rs)                     grows with the pages it has consumed (window.rs)
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
//!   into one 64 KiB block: a stride is measured by bytes read.
//! - Accesses past the end of the file come back at its front: all distances
//!   are taken modulo the file, so that a stream lives on over the wrap.
//! - The unused pages of a run are bounded by those that it has consumed (a quarter,
//!   later an eighth), so that however early it ends, little was read in vain.
//!   The price is a ramp: a run waits for its first blocks and has a megabyte
//!   ahead of it after 4 MiB, eight after 32. `Advice::Sequential` takes the largest window at
//!   once instead.
//! - Each small window of a run ends one page into a block. At this *seam* a
//!   sequential reader shows two touches in neighbouring pages, a reader that
//!   only looks into each block shows one, and stops being taken for a run. Large
//!   windows have a block that is read page by page: a reader that skips one there reads records
//!   with gaps.
//! - Density asks which pages of a region are touched, not in which order: areas.rs
//!   remembers them for the areas that were touched last, gap_period.rs finds regular gaps,
//!   guess.rs learns whether the guess of a region of some size was right, and unused_pages.rs
//!   limits the pages that are read and not used yet.
//! - Gaps that are the same in all of the file are left out of it first (gaps.rs, view.rs): all of this
//!   goes by the remaining pages.
//! - Records (records.rs) are the pages around a touch without a pattern: they are read with that
//!   touch where such pages were touched around the last such touches.
//! - Proof costs no I/O: where read-ahead was in vain, a progression has to be
//!   longer before it is believed (accuracy.rs), up to eight touches. So it is
//!   never off for good, and random access reads only touched pages.
//!
//! Source of the problem, and of the rule that only a touch of the page itself
//! counts as a hit: the mmap_miss series (document 003). The accounting of
//! that series, as policies to compare with, is in `readahead/baseline.rs`.
//!
//! Locks: none here. `ReadAhead` is protected by the lock of the page cache
//! that owns it. No I/O and no new memory after it was made: it runs in the fault
//! handler. Of a file of 512 MiB or more it is 160 KiB, of one of a few pages 2 KiB.

mod access_patterns;
mod accuracy;
mod areas;
mod baseline;
mod calls;
mod density;
mod fit;
mod gap_period;
mod gaps;
mod guess;
mod history;
mod reads;
mod records;
mod stream;
mod unused_pages;
mod view;
mod window;

use core::ops::Range;

use crate::page::Advice;
use access_patterns::AccessPatterns;
pub use baseline::{Found, LOTS, MOST, MmapMiss, RaWindow};
use gaps::Gaps;
use reads::Ahead;
pub use reads::{Cursor, Reads};
use view::View;

/// Pages of the largest folio, and its alignment. A folio never crosses a
/// multiple of it.
pub const FOLIO: u64 = 16;

/// The limits of the engine at this touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pages a run may have ahead of its reader. Below two blocks a run reads
    /// the rest of its block and nothing in the background.
    pub max_window: u32,
    /// Pages of this mapping that may be in flight or unused, all streams
    /// together; zero stops read-ahead.
    pub max_ahead: u32,
    /// The same where a guess is all but certain to come true.
    pub max_sure: u32,
    /// Pages of memory that the file's maps may take.
    pub memory: u64,
    /// Pages of the file, a partial last one included. At least one.
    pub file_pages: u64,
    /// Single-page reads that keep the device busy: the window of a stride.
    pub queue_depth: u32,
}

/// The page state that the touch met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Nothing cached: the page has to be read.
    Miss,
    /// A folio read ahead (perhaps still in flight) that nobody touched yet.
    FirstUse,
}

/// The pages to read: in pages of the file, except between the parts of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<A = Reads> {
    /// Pages to read at once and to map together: the touched one and perhaps
    /// neighbours in its block. After a first use: the touched page alone,
    /// which is cached already.
    pub demand: Range<u64>,
    /// Pages to read in the background.
    pub ahead: A,
}

impl<A: Default> Plan<A> {
    /// The page alone.
    pub(crate) fn single(page: u64) -> Self {
        Self {
            demand: page..page + 1,
            ahead: A::default(),
        }
    }
}

impl Plan {
    /// True if that is the plan.
    pub(crate) fn is_single(&self) -> bool {
        self.demand.end - self.demand.start == 1 && self.ahead.is_empty()
    }
}

/// A plan in logical pages, if there is a view.
type Planned = Plan<Ahead>;

impl Planned {
    /// Pages that are read.
    fn len(&self) -> u64 {
        self.demand.end - self.demand.start + self.ahead.len()
    }
}

/// One touch, as the parts of this module see it.
struct Event {
    page: u64,
    /// The folio that a first use maps, or that a miss may read.
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

    /// The same in logical pages; its own page is in the view.
    #[inline(never)]
    fn seen_in(&self, view: &View) -> Event {
        let page = view.rank(self.page);
        let around = view.around(self.page, &self.folio);
        let start = view.rank(around.start);
        let mut folio = start..start + (around.end - around.start);
        if self.touch == Touch::Miss {
            // The pages read for it stay in a logical block, too.
            let block = page - page % FOLIO;
            folio = folio.start.max(block)..folio.end.min(block + FOLIO);
        }
        // Of a logical block that is more than the physical one: nothing is known to have been
        // skipped there.
        let mut mapped = Mapped::ALL;
        let block = self.page - self.page % FOLIO;
        for other in block..block + FOLIO {
            let logical = view.rank(other);
            if view.has(other) && logical / FOLIO == page / FOLIO && !self.mapped.has(other) {
                mapped.remove(logical);
            }
        }
        Event {
            page,
            folio,
            touch: self.touch,
            mapped,
            file_pages: view.rank(self.file_pages),
        }
    }
}

/// Which pages of a block are mapped, a bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mapped(u16);

impl Mapped {
    /// All of them.
    const ALL: Mapped = Mapped(u16::MAX);

    /// Adds a page of the file.
    pub fn add(&mut self, page: u64) {
        self.0 |= 1 << (page % FOLIO);
    }

    fn has(self, page: u64) -> bool {
        self.0 >> (page % FOLIO) & 1 != 0
    }

    fn remove(&mut self, page: u64) {
        self.0 &= !(1 << (page % FOLIO));
    }
}

/// The allowance of a stream at one touch.
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
    patterns: AccessPatterns,
    /// None of a file that is no larger than an area.
    gaps: Option<Gaps>,
    /// The view of the file that `patterns` has, if it does not see all of it.
    view: Option<View>,
}

impl ReadAhead {
    /// No touch seen yet, of a file of so many pages.
    pub fn new(file_pages: u64) -> Self {
        ReadAhead {
            patterns: AccessPatterns::new(file_pages),
            gaps: (file_pages > areas::AREA).then(Gaps::new),
            view: None,
        }
    }

    /// Takes note of a touch of `page` and returns the pages to read.
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
    /// for their own first use: pages that are mapped unseen prove nothing.
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
        let mut event = Event {
            page,
            folio: folio.start..folio.end.min(limits.file_pages),
            touch,
            mapped,
            file_pages: limits.file_pages,
        };
        if touch == Touch::FirstUse {
            self.patterns.mapped(event.folio.end - event.folio.start);
        }
        self.look_for_gaps(&event, advice);
        if let Some(view) = &self.view {
            if !view.has(page) {
                return Plan::single(page);
            }
            event = event.seen_in(view);
        }
        let Planned { demand, ahead } = self.patterns.touch(&event, advice, limits);
        let view = self.view;
        let start = view.map_or(demand.start, |view| view.page(demand.start));
        Plan {
            demand: start..start + (demand.end - demand.start),
            ahead: Reads { ahead, view },
        }
    }

    /// Takes note of a call that has brought `pages` in, and returns the pages to read for the next one. Where such calls follow
    /// each other, or a run, they are a run; the first proves nothing.
    pub fn note_call(&mut self, pages: Range<u64>, advice: Advice, limits: &Limits) -> Reads {
        assert!(pages.end <= limits.file_pages && !pages.is_empty());
        match self.view {
            // Its touches are in the view, and the pages of a call are not.
            Some(_) => Reads::default(),
            None => Reads {
                ahead: self.patterns.note_call(pages, advice, limits),
                view: None,
            },
        }
    }

    /// Leaves gaps out that all areas have, and takes them in again where they are touched.
    #[inline(never)]
    fn look_for_gaps(&mut self, event: &Event, advice: Advice) {
        let Some(gaps) = &mut self.gaps else {
            return;
        };
        let view = match self.view {
            Some(_) if advice == Advice::Sequential => gaps.end(),
            Some(view) => gaps.touched(view, event.page),
            None if event.touch == Touch::Miss && advice == Advice::Normal => {
                gaps.missed(self.patterns.areas())
            }
            None => None,
        };
        if view != self.view {
            self.view = view;
            self.patterns.forget();
        }
    }

    /// `pages` of `plan` are being read; the others were cached already, or there was no room for them, as from page `refused` on.
    /// Told once after each plan that is not empty. Meanwhile other threads' touches may have been planned for.
    pub fn submitted(&mut self, plan: &Reads, pages: u32, refused: Option<u64>) {
        self.patterns.accuracy.submitted(pages);
        // What the patterns knew by another view is forgotten.
        if plan.view == self.view {
            let refused = refused.map(|page| self.logical(page));
            self.patterns.submitted(&plan.ahead, pages, refused);
        }
    }

    /// Nothing of `plan` is going to be read: its touch will be told again. In the place of `submitted`.
    pub fn withdrawn(&mut self, plan: &Reads) {
        if plan.view == self.view {
            self.patterns.withdrawn(&plan.ahead);
        }
    }

    /// Pages that `plan` demanded were not read: no memory, or somebody else was at work on
    /// them. If the touched page is one of them, the touch will be told again.
    pub fn unread(&mut self, plan: &Reads, pages: Range<u64>) {
        let pages = self.logical(pages.start)..self.logical(pages.end);
        if plan.view == self.view && !pages.is_empty() {
            self.patterns.unread(pages);
        }
    }

    /// True if prefetched pages around a touch that are all but certain to be touched may be mapped with it, in so many
    /// pages of memory.
    pub fn maps_ahead(&self, memory: u64) -> bool {
        self.patterns.maps_ahead(memory)
    }

    /// `pages`, a folio that was read ahead and is all but certain to be touched, are mapped with a touch of others, which comes
    /// next or was the last.
    pub fn mapped_with(&mut self, pages: Range<u64>) {
        let count = pages.end - pages.start;
        let pages = self.logical(pages.start)..self.logical(pages.end);
        self.patterns.mapped_with(count, pages);
    }

    fn logical(&self, page: u64) -> u64 {
        self.view.map_or(page, |view| view.rank(page))
    }

    /// `pages` that were read ahead were dropped untouched, by reclaim or by
    /// an unmap. Windows shrink by it: reclaim should take pages that their reader left
    /// behind, not pages that were just read.
    pub fn unused(&mut self, pages: u32) {
        self.patterns.accuracy.unused(pages);
    }

    /// Pages in flight or cached that were read ahead and not touched yet.
    pub fn outstanding(&self) -> u32 {
        self.patterns.accuracy.outstanding
    }

    /// Pages read ahead so far; those of a `demand` are not among them.
    pub fn readahead_pages(&self) -> u64 {
        self.patterns.accuracy.readahead_pages
    }

    /// Pages read ahead of which we know that they were used: whole folios of
    /// a run that went on, otherwise the touched page alone.
    pub fn readahead_used(&self) -> u64 {
        self.patterns.accuracy.readahead_used
    }

    /// Pages read ahead that were dropped untouched.
    pub fn readahead_unused(&self) -> u64 {
        self.patterns.accuracy.readahead_unused
    }
}

/// Kinds that are measured apart: runs waste by the window, strides by the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Run,
    Stride,
}
