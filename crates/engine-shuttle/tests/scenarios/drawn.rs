//! Lists of operations that are drawn.

use crate::scene::explore;
use softfault_oracle::{Draw, Random, Reads, Stage, play_spaces};

fn drawn(name: &'static str, schedules: u64, draw: Draw) {
    explore(name, schedules, move |seed| {
        let mut random = Random::new(seed);
        let stage = Stage {
            spaces: draw.spaces,
            pages: draw.pages,
            file_pages: draw.file_pages as u64,
            queue: [0, 2, 8][random.below(3)],
            reads: [Reads::AtOnce, Reads::OneByOne(1), Reads::OneByOne(4)][random.below(3)],
            hole: [0..0, 1..3][random.below(2)].clone(),
            slots: if draw.swap { 128 } else { 0 },
            ..Stage::default()
        };
        let stage = stage.with_policies_of(seed);
        let setup = draw.setup(&mut random);
        let lists = draw.lists(&mut random);
        play_spaces(&stage, &setup, &lists);
    });
}

/// Two threads in one space.
const TWO: Draw = Draw {
    spaces: 1,
    pages: 12,
    file_pages: 12,
    threads: 2,
    ops: 6,
    forks: false,
    pins: false,
    swap: false,
};

/// Four threads in two spaces, which cannot do as much each.
const FOUR: Draw = Draw {
    spaces: 2,
    file_pages: 8,
    threads: 4,
    ops: 3,
    ..TWO
};

/// With swap.
const fn swapping(draw: Draw) -> Draw {
    Draw {
        forks: true,
        swap: true,
        ..draw
    }
}

#[test]
fn two_threads_one_space() {
    drawn("two_threads_one_space", 8_000, TWO);
}

#[test]
fn three_threads_two_spaces() {
    let draw = Draw {
        spaces: 2,
        threads: 3,
        ops: 4,
        forks: true,
        ..TWO
    };
    drawn("three_threads_two_spaces", 8_000, draw);
}

#[test]
fn four_threads_with_pins() {
    let draw = Draw { pins: true, ..FOUR };
    drawn("four_threads_with_pins", 5_000, draw);
}

#[test]
fn two_threads_over_swap() {
    drawn("two_threads_over_swap", 3_000, swapping(TWO));
}

#[test]
fn four_threads_over_swap() {
    drawn("four_threads_over_swap", 2_000, swapping(FOUR));
}
