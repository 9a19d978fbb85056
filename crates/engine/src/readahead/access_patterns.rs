//! Which part of read-ahead a touch is for, in the order of the first page's picture.

use super::accuracy::Accuracy;
use super::areas::{self, Areas};
use super::calls::Calls;
use super::density::{Density, Room};
use super::fit::Fit;
use super::history::{History, Proof};
use super::reads::{Ahead, AreaPages};
use super::records::Records;
use super::stream::{LIVE, Stream};
use super::{Allowance, Event, Kind, Limits, Mapped, Planned, Touch, window};
use crate::page::Advice;
use core::ops::Range;

/// Streams that one mapping can follow at a time.
const STREAMS: usize = 20;

/// The record of the touches of one file, and the choice of the part that plans the reads. All fields are protected by
/// the lock of the page cache.
pub(super) struct AccessPatterns {
    streams: [Stream; STREAMS],
    /// Streams that exist.
    live: u8,
    history: History,
    calls: Calls,
    density: Density,
    /// None of a file that is no larger than an area.
    records: Option<Box<Records>>,
    pub(super) accuracy: Accuracy,
    /// Touches seen, wrapping.
    clock: u32,
}

impl AccessPatterns {
    /// No touch seen yet, of a file of so many pages.
    pub(super) fn new(file_pages: u64) -> Self {
        AccessPatterns {
            streams: [Stream::FREE; STREAMS],
            live: 0,
            history: History::new(),
            calls: Calls::default(),
            density: Density::new(file_pages),
            records: (file_pages > areas::AREA).then(|| Box::new(Records::new())),
            accuracy: Accuracy::new(),
            clock: 0,
        }
    }

    /// Forgets the touches, and the results of guesses about them; not the outstanding pages.
    pub(super) fn forget(&mut self) {
        // In place, one by one: the fault handler's stack has no room for a copy.
        for stream in &mut self.streams {
            *stream = Stream::FREE;
        }
        self.live = 0;
        self.history.forget();
        self.calls = Calls::default();
        self.density.forget();
        if let Some(records) = &mut self.records {
            records.forget();
        }
    }

    /// The remembered areas.
    pub(super) fn areas(&self) -> &Areas {
        self.density.areas()
    }

    /// Pages that were read ahead are mapped, for a touch that comes next.
    pub(super) fn mapped(&mut self, pages: u64) {
        self.accuracy.mapped(pages);
    }

    /// True if pages may be mapped before they are touched.
    pub(super) fn maps_ahead(&self, memory: u64) -> bool {
        self.density.is_quick(memory) && !self.density.reads_apart(self.clock)
    }

    /// So many pages that were read ahead are mapped with a touch of others; in the view they are these, perhaps fewer.
    pub(super) fn mapped_with(&mut self, count: u64, pages: Range<u64>) {
        self.accuracy.mapped(count);
        self.accuracy.used(count);
        if !pages.is_empty() {
            self.density.mapped(pages.clone(), self.clock);
            if let Some(records) = &mut self.records {
                records.mapped(pages);
            }
        }
    }

    /// Takes note of a touch and returns the pages to read.
    pub(super) fn touch(&mut self, event: &Event, advice: Advice, limits: &Limits) -> Planned {
        let (page, touch) = (event.page, event.touch);
        self.clock = self.clock.wrapping_add(1);
        if advice == Advice::Random {
            self.count_use(event, false);
            return Planned::single(page);
        }

        let known = self.find(event);
        self.density.note(event, limits.memory, self.clock);
        let records = self.records.as_mut();
        let density = &self.density;
        let begins =
            records.is_some_and(|records| records.note(event, |page| density.area_of(page)));
        if begins {
            self.density.begins(page);
        }
        let follows = |(i, fit): (usize, Fit)| {
            matches!(fit, Fit::Next(_))
                && (self.streams[i].is_run() || self.density.is_stride(page))
        };
        if !known.is_some_and(follows)
            && advice == Advice::Normal
            && let Some(plan) = self.by_density(event, limits)
        {
            self.count_use(event, true);
            // No more than the page itself may be allowed.
            if touch == Touch::FirstUse || plan.len() > 1 || self.density.may_read_ahead() {
                return plan;
            }
        }
        if begins
            && known.is_none()
            && advice == Advice::Normal
            && let Some(plan) = self.by_record(event, limits)
        {
            return plan;
        }
        self.count_use(event, known.is_some_and(|(i, _)| self.streams[i].is_run()));
        self.by_stream(event, known, advice, limits)
    }

    /// By the stream that the touch belongs to, or begins.
    #[inline(never)]
    fn by_stream(
        &mut self,
        event: &Event,
        known: Option<(usize, Fit)>,
        advice: Advice,
        limits: &Limits,
    ) -> Planned {
        let fresh = match known {
            None => self.detect(event, advice, false),
            // A stride through the starts of other readers' runs (threads in
            // step, each in its part of the file) must not hide the runs.
            Some((i, _)) if self.streams[i].is_young_stride() => self.detect(event, advice, true),
            Some(_) => None,
        };
        let (index, steps) = match (fresh, known) {
            (Some(index), _) => (index, 0),
            (None, Some((index, Fit::Next(steps)))) => (index, steps),
            (None, _) => return Planned::single(event.page),
        };
        let plan = self.advance(index, event, steps, (advice, limits));
        self.read(event, &plan);
        plan
    }

    /// Moves a stream on.
    fn advance(
        &mut self,
        index: usize,
        event: &Event,
        steps: u64,
        (advice, limits): (Advice, &Limits),
    ) -> Planned {
        let allowance = self.allowance(index, advice, limits);
        let stream = &mut self.streams[index];
        stream.stamp(self.clock);
        let plan = stream.advance(event, steps, &allowance);
        let stream = &mut self.streams[index];
        if stream.prove() {
            self.accuracy.sample(self.streams[index].kind(), u8::MAX);
        }
        plan
    }

    /// A call has brought `pages` in. Those of them that a run of touches was told of are passed.
    #[inline(never)]
    pub(super) fn note_call(
        &mut self,
        pages: Range<u64>,
        advice: Advice,
        limits: &Limits,
    ) -> Ahead {
        if advice == Advice::Random {
            return Ahead::None;
        }
        self.clock = self.clock.wrapping_add(1);
        let mut event = Event {
            page: pages.start,
            folio: pages.clone(),
            touch: Touch::FirstUse,
            // Nothing was skipped.
            mapped: Mapped::ALL,
            file_pages: limits.file_pages,
        };
        let clock = self.clock;
        let goes_on = |stream: &Stream| stream.goes_on_with(&pages, clock);
        let index = match self.streams.iter().position(goes_on) {
            Some(index) => index,
            None if self.calls.prove(&pages) => self.open(Proof::start(), &event),
            None => return Ahead::None,
        };
        let stream = &mut self.streams[index];
        if stream.next >= pages.end {
            return Ahead::None;
        }
        // The reader has all of them behind it but the last, so that the window begins behind the call, however long that is.
        event.page = pages.end - 1;
        event.folio.start = event.page;
        stream.pass_to(event.page);
        self.advance(index, &event, 0, (advice, limits)).ahead
    }

    #[inline(never)]
    fn by_density(&mut self, event: &Event, limits: &Limits) -> Option<Planned> {
        let room = Room {
            pages: u64::from(limits.max_ahead.saturating_sub(self.accuracy.outstanding)),
            sure: u64::from(limits.max_sure.saturating_sub(self.accuracy.outstanding)),
            window: u64::from(limits.max_window >> self.accuracy.shrink()),
            memory: limits.memory,
            clock: self.clock,
        };
        let plan = self.density.plan(event, &room);
        if let Some(plan) = &plan {
            self.read(event, plan);
        }
        plan
    }

    #[inline(never)]
    fn by_record(&mut self, event: &Event, limits: &Limits) -> Option<Planned> {
        let takes_areas = self.density.takes_areas();
        let most = match takes_areas {
            true => limits.max_sure,
            false => limits.max_ahead,
        };
        let room = most.saturating_sub(self.accuracy.outstanding);
        let reading = (self.records.as_ref()?).plan(
            event,
            u64::from(room),
            takes_areas,
            self.density.reads_apart(self.clock),
        )?;
        self.density.reads(event.page, &reading.pages, self.clock);
        if reading.takes_area {
            self.density.take_area(event.page, self.clock);
        }
        let ahead = match reading.pages.is_empty() {
            true => Ahead::None,
            false => Ahead::Area(AreaPages {
                start: event.page - event.page % areas::AREA,
                pages: reading.pages,
                single: reading.single,
                is_sure: takes_areas,
            }),
        };
        let plan = Planned {
            demand: reading.demand,
            ahead,
        };
        self.history.push(event.page);
        self.read(event, &plan);
        self.density.took(plan.demand.clone(), self.clock);
        Some(plan)
    }

    /// Takes note of the pages that a miss maps.
    fn read(&mut self, event: &Event, plan: &Planned) {
        if event.touch == Touch::Miss {
            self.density.mapped(plan.demand.clone(), self.clock);
            if let Some(records) = &mut self.records {
                records.mapped(plan.demand.clone());
            }
        }
    }

    /// As [`ReadAhead::submitted`](super::ReadAhead::submitted), of a plan of these patterns.
    pub(super) fn submitted(&mut self, plan: &Ahead, pages: u32, refused: Option<u64>) {
        match (self.planned_by(plan), plan) {
            (Some(stream), _) => stream.submitted(u64::from(pages) < plan.len()),
            (None, Ahead::Area(area)) => {
                if let Some(page) = refused {
                    self.density.refused(area, page);
                }
            }
            (None, _) => {}
        }
    }

    /// Nothing of a plan is going to be read.
    pub(super) fn withdrawn(&mut self, plan: &Ahead) {
        match (self.planned_by(plan), plan) {
            (Some(stream), _) => stream.withdrawn(plan.len()),
            (None, Ahead::Area(area)) => self.density.absent(area, area.start),
            (None, _) => {}
        }
    }

    /// The stream that has made a plan, if it still exists.
    fn planned_by(&mut self, plan: &Ahead) -> Option<&mut Stream> {
        let (Ahead::Run { stream, .. } | Ahead::Strided { stream, .. }) = *plan else {
            return None;
        };
        (self.streams.iter_mut()).find(|other| other.is(LIVE) && other.born == stream)
    }

    /// Pages that a plan demanded were not read: no memory, or somebody else was at work on
    /// them. If the touched page is one of them, the touch will be told again.
    pub(super) fn unread(&mut self, pages: Range<u64>) {
        if !pages.is_empty() {
            self.density.unread(pages);
        }
    }

    fn count_use(&mut self, event: &Event, of_run: bool) {
        if event.touch == Touch::FirstUse {
            let pages = event.folio.end - event.folio.start;
            self.accuracy.used(if of_run { pages } else { 1 });
        }
    }

    /// The stream that `event` belongs to. Streams that the event refutes are
    /// closed, one that it may belong to remembers it.
    #[inline(never)]
    fn find(&mut self, event: &Event) -> Option<(usize, Fit)> {
        if self.live == 0 {
            return None;
        }
        let mut best: Option<(usize, Fit)> = None;
        for index in 0..STREAMS {
            if self.streams[index].lapsed(self.clock, event.file_pages) {
                self.close(index);
            }
            match self.streams[index].fit(event) {
                None => {}
                Some(Fit::Refuted) => {
                    self.accuracy.sample(Kind::Run, 0);
                    self.free(index);
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
    #[inline(never)]
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
        self.streams[index] = Stream::new(&proof, event, clock);
        self.live += 1;
        index
    }

    fn close(&mut self, index: usize) {
        self.judge(index);
        self.free(index);
    }

    fn free(&mut self, index: usize) {
        self.live -= u8::from(self.streams[index].is(LIVE));
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
        // Half of the room: the other half is for later streams.
        let most = most.min(limits.max_ahead / 2);
        Allowance {
            cap: most >> self.accuracy.shrink(),
            room: limits.max_ahead.saturating_sub(self.accuracy.outstanding),
            at_once: advice == Advice::Sequential,
            trust: self.accuracy.trust(Kind::Run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 1 << 20;

    fn touch(patterns: &mut AccessPatterns, page: u64) -> Planned {
        let event = Event {
            page,
            folio: page..page + 1,
            touch: Touch::Miss,
            mapped: Mapped::default(),
            file_pages: FILE,
        };
        let limits = Limits {
            max_window: 2048,
            max_ahead: 4096,
            max_sure: 4096,
            memory: 1 << 16,
            file_pages: FILE,
            queue_depth: 32,
        };
        patterns.touch(&event, Advice::Normal, &limits)
    }

    /// Between a plan and its result another thread's touch may be planned for. So each result names its plan.
    #[test]
    fn the_result_of_a_plan_may_come_late() {
        let mut patterns = AccessPatterns::new(FILE);
        // The pages of an area in no order: 181 and 512 have no common divisor.
        let mut pages = (0..512).map(|at| at * 181 % 512);
        let plan = loop {
            let page = pages.next().expect("a dense area");
            let plan = touch(&mut patterns, page).ahead;
            if let Ahead::Area(area) = &plan
                && area.pages.count() >= 32
            {
                break plan;
            }
        };
        let unused = patterns.density.unused();
        assert!(unused >= plan.len(), "{unused}");
        touch(&mut patterns, FILE / 2 + 77);
        patterns.submitted(&plan, 0, Some(0));
        assert_eq!(patterns.density.unused(), unused - plan.len());
    }
}
