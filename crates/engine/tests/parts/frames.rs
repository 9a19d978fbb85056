//! The frame pool against a set of pages.

use proptest::prelude::*;
use softfault_engine::budget::Budget;
use softfault_engine::cache::frames::{CHUNK_PAGES, Frames};
use softfault_engine::cache::{FrameMemory, folio::BLOCK_PAGES};
use softfault_oracle::TestFrames;
use std::collections::BTreeSet;
use std::thread;

const CHUNKS: usize = 4;
/// The charge of a chunk: its pages and their table.
const CHARGE: u64 = CHUNK_PAGES as u64 + 1;

#[derive(Debug, Clone)]
enum Op {
    Alloc { pages: usize, most: usize },
    Free { which: usize },
    Shrink { keep: usize },
}

fn any_op() -> impl Strategy<Value = Op> {
    let most = (1..=CHUNKS).prop_map(|chunks| chunks * CHUNK_PAGES);
    prop_oneof![
        6 => (1..=BLOCK_PAGES, most).prop_map(|(pages, most)| Op::Alloc { pages, most }),
        3 => (8..=BLOCK_PAGES).prop_map(|pages| Op::Alloc { pages, most: CHUNKS * CHUNK_PAGES }),
        4 => any::<usize>().prop_map(|which| Op::Free { which }),
        1 => (0..2 * CHUNK_PAGES).prop_map(|keep| Op::Shrink { keep }),
    ]
}

type Pool = (Frames, std::sync::Arc<Budget>, std::sync::Arc<TestFrames>);

fn pool(chunks: usize, budget_chunks: u64) -> Pool {
    let memory = TestFrames::new(chunks * CHUNK_PAGES);
    // The first chunk is its owner's to pay.
    let budget = Budget::new(budget_chunks * CHARGE);
    let frames = Frames::new(memory.clone(), budget.clone()).unwrap();
    (frames, budget, memory)
}

/// Every page of every run holds its run's number.
fn write(memory: &TestFrames, frame: u32, pages: usize, number: usize) {
    let bytes = pages * 4096;
    for at in (0..bytes).step_by(512) {
        memory.byte(frame, at, Some(number as u8));
    }
}

fn holds(memory: &TestFrames, frame: u32, pages: usize, number: usize) -> bool {
    let mut places = (0..pages * 4096).step_by(512);
    places.all(|at| memory.byte(frame, at, None) == number as u8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runs_are_contiguous_apart_and_counted(
        budget_chunks in 0..CHUNKS as u64,
        ops in proptest::collection::vec(any_op(), 1..600),
    ) {
        let (frames, budget, memory) = pool(CHUNKS, budget_chunks);
        let mut runs: Vec<(u32, usize, usize)> = Vec::new();
        let mut used = BTreeSet::new();
        for (number, op) in ops.into_iter().enumerate() {
            let before = frames.counts();
            match op {
                Op::Alloc { pages, most } => match frames.alloc(pages, most, 0) {
                    Some(frame) => {
                        let run = frame as usize..frame as usize + pages;
                        prop_assert_eq!(run.start / BLOCK_PAGES, (run.end - 1) / BLOCK_PAGES);
                        prop_assert!(run.end <= CHUNKS * CHUNK_PAGES);
                        for page in run {
                            prop_assert!(used.insert(page), "page {} handed out twice", page);
                        }
                        write(&memory, frame, pages, number);
                        runs.push((frame, pages, number));
                        let present = frames.counts().present;
                        prop_assert!(present == before.present || present <= most.max(CHUNK_PAGES));
                    }
                    None => {
                        // A single page is there whenever any is free.
                        let full = before.used == before.present;
                        prop_assert!(pages > 1 || full);
                        let no_chunk = before.present + CHUNK_PAGES > most
                            || budget.free() < CHARGE;
                        prop_assert!(no_chunk, "there was room for another chunk");
                    }
                },
                Op::Free { which } if !runs.is_empty() => {
                    let (frame, pages, number) = runs.swap_remove(which % runs.len());
                    prop_assert!(holds(&memory, frame, pages, number));
                    frames.free(frame, pages);
                    for page in frame as usize..frame as usize + pages {
                        prop_assert!(used.remove(&page));
                    }
                }
                Op::Free { .. } => {}
                Op::Shrink { keep } => {
                    let (charged, discarded) = (budget.charged(), memory.discarded());
                    let given = frames.shrink(keep);
                    prop_assert_eq!(charged - budget.charged(), given);
                    let chunks = (given / CHARGE) as usize;
                    prop_assert_eq!(memory.discarded() - discarded, chunks * CHUNK_PAGES * 4096);
                    let after = frames.counts();
                    prop_assert_eq!(before.present - after.present, chunks * CHUNK_PAGES);
                    prop_assert!(chunks == 0 || after.present >= keep);
                }
            }
            let counts = frames.counts();
            prop_assert_eq!(counts.used, used.len());
            let paid = (counts.present / CHUNK_PAGES).saturating_sub(1) as u64;
            prop_assert_eq!(budget.charged(), paid * CHARGE);
        }
        for (frame, pages, number) in runs {
            prop_assert!(holds(&memory, frame, pages, number), "run {} was overwritten", number);
            frames.free(frame, pages);
        }
        frames.shrink(0);
        prop_assert_eq!(frames.counts().used, 0);
        prop_assert_eq!(budget.charged(), 0);
        prop_assert!(frames.counts().present <= CHUNK_PAGES);
    }
}

#[test]
fn threads_share_the_pool() {
    share(CHUNKS);
}

/// A pool of three parts, of which the last has a chunk less than the others.
#[test]
fn threads_share_a_pool_of_parts() {
    share(26);
}

fn share(chunks: usize) {
    let (frames, budget, memory) = pool(chunks, chunks as u64 - 1);
    assert_eq!(memory.bytes(), chunks * CHUNK_PAGES * 4096);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (frames, memory) = (&frames, &memory);
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..2000 {
                    let pages = (round * 7 + thread) % BLOCK_PAGES + 1;
                    if let Some(frame) = frames.alloc(pages, chunks * CHUNK_PAGES, 0) {
                        write(memory, frame, pages, thread);
                        held.push((frame, pages));
                    }
                    if held.len() > 10 * chunks || round % 3 == 0 && !held.is_empty() {
                        let (frame, pages) = held.swap_remove(round % held.len());
                        assert!(holds(memory, frame, pages, thread));
                        frames.free(frame, pages);
                    }
                    if round % 100 == thread {
                        frames.shrink(CHUNK_PAGES);
                    }
                }
                for (frame, pages) in held {
                    assert!(holds(memory, frame, pages, thread));
                    frames.free(frame, pages);
                }
            });
        }
    });
    // All of the pool is to be had, from whichever part.
    let runs = (0..chunks * CHUNK_PAGES / BLOCK_PAGES).map(|_| {
        let run = frames.alloc(BLOCK_PAGES, chunks * CHUNK_PAGES, 0);
        run.expect("there is room")
    });
    let runs = BTreeSet::from_iter(runs);
    assert_eq!(runs.len(), chunks * CHUNK_PAGES / BLOCK_PAGES);
    assert_eq!(frames.alloc(1, chunks * CHUNK_PAGES, 0), None);
    runs.iter().for_each(|&run| frames.free(run, BLOCK_PAGES));
    frames.shrink(0);
    assert_eq!(frames.counts().used, 0);
    assert_eq!(budget.charged(), 0);
}
