//! Lists of operations that are drawn.

use softfault_oracle::{Draw, Random, Stage, play_spaces};
use sync::explore;

fn drawn(name: &'static str, schedules: u64, draw: Draw, stage: fn(Stage, &mut Random) -> Stage) {
    explore::scenario(name, schedules, move |seed| {
        let mut random = Random::new(seed);
        let base = Stage {
            spaces: draw.spaces,
            pages: draw.pages,
            file_pages: draw.file_pages as u64,
            queue: [0, 2, 8][random.below(3)],
            held_reads: [None, Some(1), Some(4)][random.below(3)],
            ..Stage::default()
        };
        let stage = stage(base.with_policies_of(seed), &mut random);
        let setup = draw.setup(&mut random);
        let lists = draw.lists(&mut random);
        play_spaces(&stage, &setup, &lists);
    });
}

#[test]
fn two_threads_one_space() {
    let draw = Draw {
        spaces: 1,
        pages: 12,
        file_pages: 12,
        threads: 2,
        ops: 6,
        forks: false,
        pins: false,
    };
    drawn("two_threads_one_space", 2000, draw, |stage, _| stage);
}

#[test]
fn three_threads_two_spaces() {
    let draw = Draw {
        spaces: 2,
        pages: 12,
        file_pages: 12,
        threads: 3,
        ops: 5,
        forks: true,
        pins: false,
    };
    drawn("three_threads_two_spaces", 2000, draw, |stage, _| stage);
}
