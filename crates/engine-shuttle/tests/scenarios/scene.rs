//! The parts of directed scenarios.

use crate::found;
use core::ops::Range;
use softfault_engine_shuttle::PAGE_SIZE;
use softfault_engine_shuttle::mm::Protection;
use softfault_oracle::{MapAdvice, MemoryVerb, Op, Played, Random, Reads, Stage, play_spaces};
// Taken for one step without a scheduling point.
use std::sync::{Arc, Mutex};
use sync::explore::Explore;

pub fn read(space: u8, pages: Range<usize>) -> Op {
    let bytes = pages.start * PAGE_SIZE..pages.end * PAGE_SIZE;
    Op::ReadBytes { space, bytes }
}

pub fn write(space: u8, pages: Range<usize>) -> Op {
    let bytes = pages.start * PAGE_SIZE..pages.end * PAGE_SIZE;
    let seed = 0;
    Op::WriteBytes { space, bytes, seed }
}

pub fn map_file(space: u8, pages: Range<usize>, from: usize) -> Op {
    Op::MapFile { space, pages, from }
}

pub fn map_zeros(space: u8, pages: Range<usize>) -> Op {
    Op::MapZeros { space, pages }
}

pub fn map_copy(space: u8, pages: Range<usize>, from: usize) -> Op {
    Op::MapCopy { space, pages, from }
}

pub fn manage(space: u8, pages: Range<usize>, verb: MemoryVerb) -> Op {
    Op::ManagePages { space, pages, verb }
}

pub fn unmap(space: u8, pages: Range<usize>) -> Op {
    Op::UnmapPages { space, pages }
}

pub fn protect(space: u8, pages: Range<usize>, protection: Protection) -> Op {
    Op::ProtectPages {
        space,
        pages,
        protection,
    }
}

pub fn advise(space: u8, pages: Range<usize>, advice: MapAdvice) -> Op {
    Op::AdvisePages {
        space,
        pages,
        advice,
    }
}

pub fn remap(space: u8, pages: Range<usize>, to: usize) -> Op {
    Op::RemapPages { space, pages, to }
}

pub fn truncate(pages: usize) -> Op {
    let len = (pages * PAGE_SIZE) as u32;
    Op::Truncate { len }
}

/// Runs a scenario under the seeds that found something once, and then under so
/// many schedules, none of which may stall.
pub fn explore(
    name: &'static str,
    schedules: u64,
    scenario: impl Fn(u64) + Send + Sync + Clone + 'static,
) {
    run(name, schedules, false, scenario);
}

/// Runs them; how many schedules it was at last.
fn run(
    name: &'static str,
    schedules: u64,
    may_stall: bool,
    scenario: impl Fn(u64) + Send + Sync + Clone + 'static,
) -> u64 {
    let explore = |schedules| match may_stall {
        true => Explore::new(name, schedules).may_stall(),
        false => Explore::new(name, schedules),
    };
    let found = found::seeds(name);
    if !found.is_empty() {
        explore(0).seeds(&found).run(scenario.clone());
    }
    explore(schedules).run(scenario).schedules
}

/// What came of a directed scenario, under all schedules together.
pub struct All {
    schedules: u64,
    played: Played,
}

impl All {
    /// Schedules under which everything that a scenario is about has happened at least once. Somebody who runs one again asks
    /// for one.
    const ENOUGH: u64 = 100;

    /// Asserts that it has happened.
    pub fn had(&self, count: impl Fn(&Played) -> u64, what: &str) -> &Self {
        let is_enough = self.schedules >= Self::ENOUGH;
        assert!(!is_enough || count(&self.played) > 0, "never {what}");
        self
    }

    /// Asserts that each operation was obeyed: one that is always left out explores nothing.
    fn assert_obeyed(&self, lists: &[Vec<Op>]) {
        for (list, times) in lists.iter().zip(&self.played.obeyed) {
            for (nth, op) in list.iter().enumerate() {
                self.had(|_| times[nth], &format!("obeyed: {op:?}"));
            }
        }
    }
}

/// Plays the same lists under each schedule. The seed also decides the
/// policies, whether reads are asynchronous, and whether they are held back. Each operation
/// has to be obeyed under some schedule.
pub fn directed(
    name: &'static str,
    schedules: u64,
    stage: &Stage,
    setup: Vec<Op>,
    lists: Vec<Vec<Op>>,
) -> All {
    play(name, schedules, false, stage, setup, lists)
}

/// The same where threads wait for memory that nobody gives back.
pub fn short_of_memory(
    name: &'static str,
    schedules: u64,
    stage: &Stage,
    setup: Vec<Op>,
    lists: Vec<Vec<Op>>,
) -> All {
    play(name, schedules, true, stage, setup, lists)
}

fn play(
    name: &'static str,
    schedules: u64,
    may_stall: bool,
    stage: &Stage,
    setup: Vec<Op>,
    lists: Vec<Vec<Op>>,
) -> All {
    let all = Arc::new(Mutex::new(Played::default()));
    let (stage, sum) = (stage.clone(), all.clone());
    let given: Vec<Vec<Op>> = [vec![setup.clone()], lists.clone()].concat();
    let schedules = run(name, schedules, may_stall, move |seed| {
        let mut random = Random::new(seed);
        let stage = Stage {
            queue: [0, 4][random.below(2)],
            reads: [Reads::AtOnce, Reads::OneByOne(2)][random.below(2)],
            ..stage.clone().with_policies_of(seed)
        };
        let played = play_spaces(&stage, &setup, &lists);
        sum.lock().expect("nobody panicked").add(&played);
    });
    let played = all.lock().expect("nobody panicked").clone();
    let all = All { schedules, played };
    all.assert_obeyed(&given);
    all
}
