//! What directed scenarios are made of.

use core::ops::Range;
use softfault_engine_shuttle::PAGE_SIZE;
use softfault_engine_shuttle::mm::Protection;
use softfault_oracle::{MapAdvice, Op, Random, Stage, play_spaces};
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

/// Plays the same lists under each schedule. What the seed says besides: the
/// policies, whether reads are asynchronous, and whether they are held back.
pub fn directed(
    name: &'static str,
    schedules: u64,
    stage: &Stage,
    setup: Vec<Op>,
    lists: Vec<Vec<Op>>,
) {
    play(Explore::new(name, schedules), stage, setup, lists);
}

/// The same where threads wait for memory that nobody gives back.
pub fn short_of_memory(
    name: &'static str,
    schedules: u64,
    stage: &Stage,
    setup: Vec<Op>,
    lists: Vec<Vec<Op>>,
) {
    play(
        Explore::new(name, schedules).may_stall(),
        stage,
        setup,
        lists,
    );
}

fn play(explore: Explore, stage: &Stage, setup: Vec<Op>, lists: Vec<Vec<Op>>) {
    let stage = stage.clone();
    explore.run(move |seed| {
        let mut random = Random::new(seed);
        let stage = Stage {
            queue: [0, 4][random.below(2)],
            held_reads: [None, Some(2)][random.below(2)],
            ..stage.clone().with_policies_of(seed)
        };
        play_spaces(&stage, &setup, &lists);
    });
}
