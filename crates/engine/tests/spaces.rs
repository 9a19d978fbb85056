//! Lists of operations that threads obey at a time, on the real machine: drawn
//! by seeds (plain runs), and by proptest, which makes a list that fails
//! shorter. The schedules are whatever the machine does; `crates/engine-shuttle`
//! has the same lists under schedules that can be run again.

use proptest::prelude::*;
use softfault_oracle::{Draw, Random, Reads, Stage, play_spaces};

const DRAW: Draw = Draw {
    spaces: 2,
    pages: 48,
    file_pages: 40,
    threads: 4,
    ops: 60,
    forks: true,
    pins: false,
    swap: false,
};

fn stage(draw: &Draw, seed: u64, random: &mut Random) -> Stage {
    let stage = Stage {
        spaces: draw.spaces,
        pages: draw.pages,
        file_pages: draw.file_pages as u64,
        queue: [0, 2, 8][random.below(3)],
        reads: [Reads::AtOnce, Reads::OneByOne(20)][random.below(2)],
        hole: [0..0, 5..9][random.below(2)].clone(),
        slots: if draw.swap { 1024 } else { 0 },
        free: draw.swap.then(|| [90, 200, 400][random.below(3)]),
        may_be_short: draw.swap,
        ..Stage::default()
    };
    stage.with_policies_of(seed)
}

fn play(draw: &Draw, seed: u64) {
    let mut random = Random::new(seed);
    let stage = stage(draw, seed, &mut random);
    let setup = draw.setup(&mut random);
    let lists = draw.lists(&mut random);
    play_spaces(&stage, &setup, &lists);
}

#[test]
fn drawn_lists_at_a_time() {
    for seed in 0..150 {
        play(&DRAW, seed);
    }
}

#[test]
fn drawn_lists_with_pins() {
    let draw = Draw { pins: true, ..DRAW };
    for seed in 0..100 {
        play(&draw, seed);
    }
}

/// More is mapped than there is memory for, and everything is evicted all the
/// time besides.
#[test]
fn drawn_lists_over_swap() {
    let draw = Draw { swap: true, ..DRAW };
    for seed in 0..200 {
        play(&draw, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// One thread: what may be seen is then exactly what is so.
    #[test]
    fn one_thread_sees_exactly_what_is_so(
        seed in any::<u64>(),
        swap in any::<bool>(),
        drop in proptest::collection::vec(any::<bool>(), 120),
    ) {
        let draw = Draw { threads: 1, ops: 120, swap, ..DRAW };
        let mut random = Random::new(seed);
        let stage = stage(&draw, seed, &mut random);
        let setup = draw.setup(&mut random);
        let mut lists = draw.lists(&mut random);
        let mut drop = drop.into_iter();
        lists[0].retain(|_| drop.next() == Some(true));
        play_spaces(&stage, &setup, &lists);
    }
}
