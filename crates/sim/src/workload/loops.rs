//! Loops of one verb, as papers on address spaces measure them: CortenMM (SOSP 2025) has these five. Threads meet,
//! do the verb on some regions each, and meet again; only this part is measured.
//!
//! ```text
//!   prepare ─► meet ─► the verb, on BATCH regions each ─► meet ─► check, give up ─┐
//!      ▲             wall and CPU time of this                                    │
//!      └────────────────────── until the time is over ◄───────────────────────────┘
//! ```
//! Disjoint: each region is a mapping of its own, which one thread alone uses. Contended
//! (`Job::contended`): all regions are parts of one mapping, and threads take them in
//! turn, so that the neighbours of a region are other threads'.

use super::gang::{Member, Task};
use super::meeting::Meeting;
use super::tally::Waited;
use crate::job::{Job, PAGE, Verb};
use crate::rig::AnonymousMap;
use crate::world;
use core::ops::Range;
use softfault_engine::fault::FaultError;
use softfault_engine::lock::Mutex;
use sync::Arc;

/// Regions of a thread between two meetings.
const BATCH: usize = 16;
/// The budget: as good as none.
const MEMORY: u64 = 8 << 30;
/// Bytes of a region.
const REGION: u64 = 16 << 10;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.region = REGION;
    job.memory = MEMORY;
}

/// The state that the threads share.
struct Test {
    verb: Verb,
    contended: bool,
    threads: usize,
    bytes: usize,
    meeting: Meeting,
    /// The one memory of contended regions, for the length of a round.
    all: Mutex<Option<Arc<AnonymousMap>>>,
}

/// The regions of a thread in a round.
#[derive(Default)]
struct Regions {
    /// Disjoint: the memory of each that is mapped.
    own: Vec<AnonymousMap>,
    /// Contended: the memory of all.
    all: Option<Arc<AnonymousMap>>,
    /// Their addresses, as far as they are known.
    ranges: Vec<Range<usize>>,
}

/// The threads.
pub fn tasks(job: &Job) -> Vec<Task> {
    let test = Arc::new(Test {
        verb: job.verb,
        contended: job.contended,
        threads: job.threads,
        bytes: job.region as usize,
        meeting: Meeting::new(job, job.threads),
        all: Mutex::new(None),
    });
    let task = |number| {
        let test = test.clone();
        Task {
            name: format!("loops {number}"),
            nice: 0,
            works: true,
            body: Box::new(move |member| test.rounds(member, number)),
        }
    };
    (0..job.threads).map(task).collect()
}

impl Test {
    fn rounds(&self, member: &mut Member, number: usize) -> Result<(), String> {
        let seat = self.meeting.seat();
        for round in 0.. {
            if self.contended && number == 0 {
                *self.all.lock() = Some(Arc::new(self.make_all(member)?));
            }
            if seat.meet(0, || false).is_none() {
                return Ok(());
            }
            let mut regions = self.prepare(member, number)?;
            // One round at least, however short the run.
            let over = || round > 0 && member.stopped();
            let Some(met) = seat.meet(0, over) else {
                return Ok(());
            };
            if !met.over {
                let cpu_ns = world::cpu_ns();
                self.act(member, &mut regions)?;
                member.tally.populated.cpu_ns += world::cpu_ns() - cpu_ns;
                member.tally.rounds += BATCH as u64;
            }
            let Some(met_again) = seat.meet(world::now_ns(), || false) else {
                return Ok(());
            };
            if !met.over && number == 0 {
                member.tally.populated.ns += met_again.latest_ns - met.at_ns;
            }
            if !met.over {
                self.check(member, &regions.ranges)?;
            }
            for map in regions.own {
                member.rig.unmap_anonymous(map);
            }
            drop(regions.all);
            if seat.meet(0, || false).is_none() {
                return Ok(());
            }
            if self.contended && number == 0 {
                let all = self.all.lock().take().and_then(Arc::into_inner);
                let all = all.expect("all have given up their parts");
                member.rig.unmap_anonymous(all);
            }
            if met.over {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Memory for the regions of all threads.
    fn make_all(&self, member: &Member) -> Result<AnonymousMap, String> {
        let bytes = (self.threads * BATCH * self.bytes) as u64;
        match self.verb.maps() {
            true => member.rig.make_anonymous(bytes),
            false => member.rig.map_anonymous(bytes),
        }
    }

    /// All that the verb needs.
    fn prepare(&self, member: &mut Member, number: usize) -> Result<Regions, String> {
        let mut regions = Regions::default();
        if self.contended {
            let all = self.all.lock().clone().expect("made before the meeting");
            for turn in 0..BATCH {
                let start = all.start() + (turn * self.threads + number) * self.bytes;
                regions.ranges.push(start..start + self.bytes);
            }
            regions.all = Some(all);
        } else if !self.verb.maps() {
            for _ in 0..BATCH {
                self.map_one(member, &mut regions)?;
            }
        }
        if self.verb == Verb::Unmap {
            for range in &regions.ranges {
                self.touch(member, range)?;
            }
        }
        Ok(regions)
    }

    fn map_one(&self, member: &Member, regions: &mut Regions) -> Result<Range<usize>, String> {
        let map = member.rig.map_anonymous(self.bytes as u64)?;
        let range = map.start()..map.start() + self.bytes;
        regions.own.push(map);
        regions.ranges.push(range.clone());
        Ok(range)
    }

    /// The measured part.
    fn act(&self, member: &mut Member, regions: &mut Regions) -> Result<(), String> {
        for number in 0..BATCH {
            match self.verb {
                Verb::Map | Verb::MapAndTouch => {
                    let range = member.timed(Waited::Map, |member| match &regions.all {
                        None => self.map_one(member, regions),
                        Some(all) => {
                            let range = regions.ranges[number].clone();
                            member.rig.map_part(all, range.clone())?;
                            Ok(range)
                        }
                    })?;
                    if self.verb == Verb::MapAndTouch {
                        self.touch(member, &range)?;
                    }
                }
                Verb::Touch => self.touch(member, &regions.ranges[number])?,
                Verb::UnmapUntouched | Verb::Unmap => {
                    member.timed(Waited::Unmap, |member| match regions.own.pop() {
                        Some(map) => member.rig.unmap_anonymous(map),
                        None => member.rig.unmap_part(regions.ranges[number].clone()),
                    });
                }
            }
        }
        Ok(())
    }

    /// Writes a word of each page of a region.
    fn touch(&self, member: &mut Member, range: &Range<usize>) -> Result<(), String> {
        for addr in range.clone().step_by(PAGE as usize) {
            let written = member.timed(Waited::Touch, |member| {
                member.rig.write(&mut member.view, addr, addr as u64)
            });
            written.map_err(|error| format!("cannot write a page: {error:?}"))?;
            member.tally.touches += 1;
        }
        Ok(())
    }

    /// The verb has done what it is for.
    fn check(&self, member: &mut Member, ranges: &[Range<usize>]) -> Result<(), String> {
        for range in ranges {
            let word = member.rig.read(&mut member.view, range.start);
            member.tally.touches += 1;
            let expected = match self.verb {
                Verb::Map => Ok(0),
                Verb::MapAndTouch | Verb::Touch => Ok(range.start as u64),
                // Disjoint windows are free by now, and may be another thread's.
                Verb::UnmapUntouched | Verb::Unmap if !self.contended => continue,
                Verb::UnmapUntouched | Verb::Unmap => Err(FaultError::NotMapped),
            };
            if word != expected {
                let verb = self.verb;
                return Err(format!("a page after {verb}: {word:?}, not {expected:?}"));
            }
        }
        Ok(())
    }
}
