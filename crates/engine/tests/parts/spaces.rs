//! Lists of operations that threads obey at a time, on the real machine: drawn
//! by seeds (plain runs), and by proptest, which makes a list that fails
//! shorter. The schedules are whatever the machine does; `crates/engine-shuttle`
//! has the same lists under schedules that can be run again.

use proptest::prelude::*;
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::budget::FLOOR;
use softfault_engine::fault::{self, NeverInterrupted};
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_oracle::{Draw, Random, Reads, Rig, Stage, TestSwap, play_spaces, together};
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Counts a thread out, also if it panics.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // Relaxed: only says when to stop.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters of a thread each, in pages that all share; more of them than there is
/// memory for, and other threads that evict. A write that is lost is a count too few.
fn count(seed: u64) {
    const START: usize = 0x7100_0000_0000;
    const PAGES: usize = 200;
    const WRITERS: usize = 4;
    const TIMES: usize = 3000;
    let stage = Stage::default().with_policies_of(seed);
    let swap = TestSwap::with_queue(4 * PAGES, [0, 4][seed as usize % 2]);
    let rig = Rig::with_swap(2048, stage.policies, &swap);
    let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
    let attributes = Attributes {
        backing: Backing::from(anon),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    let mapped = rig.space.mmap(START..START + PAGES * PAGE_SIZE, attributes);
    mapped.unwrap();
    let budget = rig.node.budget.clone();
    let taken = budget.free() - FLOOR - [60, 100, 150][seed as usize % 3];
    assert!(budget.try_charge(taken, 0));

    let writing = AtomicUsize::new(WRITERS);
    let write = |writer: usize| {
        let _ends = Ends(&writing);
        let mut random = Random::new(seed * 10 + writer as u64);
        let mut core = rig.mmu.core().unwrap();
        let mut counts = [0u64; PAGES];
        let mut word = [0; 8];
        for time in 0..TIMES + PAGES {
            // Here and there; at last each once more.
            let page = time.checked_sub(TIMES).unwrap_or(random.below(PAGES));
            let addr = START + page * PAGE_SIZE + writer * 8 + page % 7 * 512;
            let interrupt = &NeverInterrupted;
            fault::read_at(&mut core, &rig.space, addr, &mut word, interrupt).unwrap();
            let found = u64::from_ne_bytes(word);
            assert_eq!(
                found, counts[page],
                "seed {seed}, page {page} of writer {writer}"
            );
            counts[page] += 1;
            let word = counts[page].to_ne_bytes();
            fault::write_at(&mut core, &rig.space, addr, &word, interrupt).unwrap();
        }
    };
    let evict = || {
        while writing.load(Ordering::Relaxed) > 0 {
            rig.node.reclaim(16);
            std::thread::yield_now();
        }
    };
    let mut jobs: Vec<Box<dyn FnOnce() + Send + '_>> = vec![Box::new(evict), Box::new(evict)];
    for writer in 0..WRITERS {
        jobs.push(Box::new(move || write(writer)));
    }
    together(jobs);
    let stats = &rig.node.swap.as_ref().unwrap().stats;
    assert!(
        stats.pages_out.get() > 0 && stats.pages_in.get() > 0,
        "{stats:?}"
    );
    budget.uncharge(taken);
    rig.finish();
}

#[test]
fn no_write_is_lost() {
    for seed in 0..18 {
        count(seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// One thread: the possible bytes are then exactly the true ones.
    #[test]
    fn one_thread_sees_exactly_the_truth(
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
