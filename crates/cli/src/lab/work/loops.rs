//! Loops of one verb, as papers on address spaces measure them: CortenMM (SOSP 2025) has these five. Threads meet, do the
//! verb on some regions each, and meet again; only this part is measured. Its twin in the simulator is `sim loops`.
//!
//! ```text
//!   prepare ─► meet ─► the verb, on BATCH regions each ─► meet ─► check, give up ─┐
//!      ▲                     wall time of this                                    │
//!      └────────────────────── until the time is over ◄───────────────────────────┘
//! ```
//! Disjoint: each region is a mapping that one thread alone uses. Contended, where the engine's interface allows it: pages to
//! touch are those of one mapping, whose regions threads take in turn; regions to unmap are dealt out again by address, so that
//! neighbours are unmapped by other threads at the same time.

use super::super::engine::Anonymous;
use super::super::fill::PAGE;
use super::gang::Member;
use super::meeting::Meeting;
use super::memory::Toucher;
use super::{Bench, gang};
use crate::results::row::Waited;
use softfault::clock::now_ns;
use softfault_sim::Verb;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

/// Regions of a thread between two meetings.
pub const BATCH: usize = 64;

/// A mapping of its own.
type Region = Box<dyn Anonymous>;

/// The state that the threads share.
struct Test {
    verb: Verb,
    contended: bool,
    threads: usize,
    bytes: u64,
    meeting: Meeting,
    /// Contended touches: the one mapping; between two meetings only read.
    all: RwLock<Option<Region>>,
    /// Contended unmapping: the regions of all, dealt out by the last to come to a meeting.
    dealt: Mutex<Vec<Option<Region>>>,
    /// When the verb began; written by the last to come to a meeting, which publishes it.
    began: AtomicU64,
    /// Whether there is another round; as `began`.
    over: AtomicBool,
}

/// Runs the loop of a verb on regions of `bytes` bytes until the time is over.
pub fn run(bench: &Bench, verb: Verb, contended: bool, bytes: u64) -> Result<(), String> {
    let test = Test {
        verb,
        contended,
        threads: bench.job.threads,
        bytes,
        meeting: Meeting::new(bench.job.threads),
        all: RwLock::new(None),
        dealt: Mutex::new(Vec::new()),
        began: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    gang::measure(bench, 256 << 10, Some(bench.job.seconds), |member| {
        test.rounds(bench, member)
    })
}

impl Test {
    fn rounds(&self, bench: &Bench, member: &Member) -> Result<(), String> {
        let seat = self.meeting.seat();
        for round in 0.. {
            let mut regions = self.prepare(bench, member, round)?;
            if self.deals() {
                let mut dealt = self.dealt.lock().expect("no thread panics");
                dealt.extend(regions.drain(..).map(Some));
                drop(dealt);
                let sort = || {
                    let mut dealt = self.dealt.lock().expect("no thread panics");
                    dealt.retain(Option::is_some);
                    dealt.sort_by_key(|region| region.as_ref().and_then(|region| region.start()));
                };
                if !seat.meet(sort) {
                    return Ok(());
                }
                regions = self.dealt(member.number).into_iter().flatten().collect();
            }
            let start = || {
                // One round at least, however short the run.
                let over = round > 0 && member.stopped();
                self.over.store(over, Ordering::Relaxed);
                self.began.store(now_ns(), Ordering::Relaxed);
            };
            if !seat.meet(start) || self.over.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.act(bench, member, round, &mut regions)?;
            let end = || member.count_populate(now_ns() - self.began.load(Ordering::Relaxed));
            if !seat.meet(end) {
                return Ok(());
            }
            self.check(member, &regions, round)?;
            for _ in 0..BATCH {
                member.count_round();
            }
        }
        Ok(())
    }

    /// Whether regions go to other threads than those that mapped them.
    fn deals(&self) -> bool {
        self.contended && self.verb != Verb::Touch
    }

    /// The thread's part of the regions of all: each so many of them.
    fn dealt(&self, number: usize) -> Vec<Option<Region>> {
        let mut all = self.dealt.lock().expect("no thread panics");
        let own = all.iter_mut().skip(number).step_by(self.threads);
        own.map(Option::take).collect()
    }

    /// All that the verb needs.
    fn prepare(&self, bench: &Bench, member: &Member, round: u64) -> Result<Vec<Region>, String> {
        let mut regions = Vec::new();
        if self.contended && self.verb == Verb::Touch {
            if member.number == 0 {
                let bytes = (self.threads * BATCH) as u64 * self.bytes;
                let mut all = self.all.write().expect("no thread panics");
                // The last one goes before there is another.
                *all = None;
                *all = Some(bench.map_anonymous(bytes)?);
            }
            return Ok(regions);
        }
        if !matches!(self.verb, Verb::Map | Verb::MapAndTouch) {
            for _ in 0..BATCH {
                regions.push(bench.map_anonymous(self.bytes)?);
            }
        }
        if self.verb == Verb::Unmap {
            for region in &regions {
                self.touch(member, &**region, round, 0)?;
            }
        }
        Ok(regions)
    }

    /// The measured part.
    fn act(
        &self,
        bench: &Bench,
        member: &Member,
        round: u64,
        regions: &mut Vec<Region>,
    ) -> Result<(), String> {
        let all = self.all.read().expect("no thread panics");
        for number in 0..BATCH {
            match self.verb {
                Verb::Map | Verb::MapAndTouch => {
                    let map = || bench.map_anonymous(self.bytes);
                    let region = member.timed(Waited::Map, map)?;
                    if self.verb == Verb::MapAndTouch {
                        self.touch(member, &*region, round, 0)?;
                    }
                    regions.push(region);
                }
                Verb::Touch => match &*all {
                    None => self.touch(member, &*regions[number], round, 0)?,
                    Some(all) => {
                        let region = (number * self.threads + member.number) as u64;
                        self.touch(member, &**all, round, region * self.bytes / PAGE)?;
                    }
                },
                Verb::UnmapUntouched | Verb::Unmap => {
                    let region = regions.pop();
                    member.timed(Waited::Unmap, || drop(region));
                }
            }
        }
        Ok(())
    }

    /// Checks a page of each region that is left. The first thread checks a page of the mapping of all too: it unmaps that next.
    fn check(&self, member: &Member, regions: &[Region], round: u64) -> Result<(), String> {
        for region in regions {
            let toucher = Toucher::new(&**region, round);
            match self.verb {
                Verb::Touch | Verb::MapAndTouch => toucher.check(0)?,
                _ => toucher.check_untouched(0)?,
            }
        }
        let all = self.all.read().expect("no thread panics");
        match &*all {
            Some(all) if member.number == 0 => {
                let pages = (self.threads * BATCH) as u64 * self.bytes / PAGE;
                Toucher::new(&**all, round).check(round % pages)
            }
            _ => Ok(()),
        }
    }

    /// Writes to each page of a region, from page `first` of a mapping on.
    fn touch(
        &self,
        member: &Member,
        memory: &dyn Anonymous,
        round: u64,
        first: u64,
    ) -> Result<(), String> {
        let toucher = Toucher::new(memory, round);
        for page in first..first + self.bytes / PAGE {
            member.timed(Waited::Touch, || toucher.touch(page))?;
        }
        member.count(self.bytes / PAGE);
        Ok(())
    }
}
