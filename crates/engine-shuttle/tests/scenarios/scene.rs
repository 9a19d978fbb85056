//! The parts of directed scenarios.

use crate::found;
use core::ops::Range;
use softfault_engine_shuttle::PAGE_SIZE;
use softfault_engine_shuttle::mm::Protection;
use softfault_oracle::{MapAdvice, MemoryVerb, Op, Random, Reads, Stage, play_spaces};
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

fn run(
    name: &'static str,
    schedules: u64,
    may_stall: bool,
    scenario: impl Fn(u64) + Send + Sync + Clone + 'static,
) {
    let explore = |schedules| match may_stall {
        true => Explore::new(name, schedules).may_stall(),
        false => Explore::new(name, schedules),
    };
    let found = found::seeds(name);
    if !found.is_empty() {
        explore(0).seeds(&found).run(scenario.clone());
    }
    explore(schedules).run(scenario);
}

/// Plays the same lists under each schedule. The seed also decides the
/// policies, whether reads are asynchronous, and whether they are held back.
pub fn directed(
    name: &'static str,
    schedules: u64,
    stage: &Stage,
    setup: Vec<Op>,
    lists: Vec<Vec<Op>>,
) {
    run(name, schedules, false, play(stage, setup, lists));
}

/// The same where threads wait for memory that nobody gives back.
pub fn short_of_memory(
    name: &'static str,
    schedules: u64,
    stage: &Stage,
    setup: Vec<Op>,
    lists: Vec<Vec<Op>>,
) {
    run(name, schedules, true, play(stage, setup, lists));
}

fn play(
    stage: &Stage,
    setup: Vec<Op>,
    lists: Vec<Vec<Op>>,
) -> impl Fn(u64) + Send + Sync + Clone + 'static {
    let stage = stage.clone();
    move |seed| {
        let mut random = Random::new(seed);
        let stage = Stage {
            queue: [0, 4][random.below(2)],
            reads: [Reads::AtOnce, Reads::OneByOne(2)][random.below(2)],
            ..stage.clone().with_policies_of(seed)
        };
        play_spaces(&stage, &setup, &lists);
    }
}
