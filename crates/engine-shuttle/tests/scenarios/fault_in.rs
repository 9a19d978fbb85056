//! Ranges that are brought in with reads in flight, against changes of their mappings.

use crate::scene::{advise, directed, manage, map_copy, map_file, read, truncate, unmap};
use softfault_oracle::{MapAdvice, MemoryVerb, Op, Stage};

/// All pages of the file are mapped at the front, from this one on, so that they are in two blocks of 64 KiB: one that is the only
/// missing one is read by the thread that wants it, and not in flight while it looks on.
const FIRST: usize = 13;

fn stage(pages: usize) -> Stage {
    Stage {
        file_pages: (FIRST + pages) as u64,
        ..Stage::of_pages(pages)
    }
}

fn populate(pages: core::ops::Range<usize>) -> Op {
    manage(0, pages, MemoryVerb::PopulateRead)
}

/// Two threads bring the same pages in, one touches them, one throws them away.
#[test]
fn fault_in_against_eviction() {
    let all = directed(
        "fault_in_against_eviction",
        3_000,
        &stage(8),
        vec![
            map_file(0, 0..8, FIRST),
            advise(0, 0..8, MapAdvice::Random),
            read(0, 2..3),
        ],
        vec![
            vec![populate(0..6), read(0, 1..3)],
            vec![populate(1..8)],
            vec![
                Op::Evict,
                read(0, 4..6),
                Op::InvalidateFile {
                    pages: FIRST..FIRST + 8,
                },
            ],
        ],
    );
    // No policy reads ahead here.
    all.had(|all| all.submitted, "had reads in flight")
        .had(|all| all.evicted, "evicted");
}

#[test]
fn fault_in_against_truncate() {
    let stage = Stage {
        hole: FIRST as u64 + 2..FIRST as u64 + 3,
        ..stage(6)
    };
    let all = directed(
        "fault_in_against_truncate",
        3_000,
        &stage,
        vec![map_file(0, 0..6, FIRST), advise(0, 0..6, MapAdvice::Random)],
        vec![
            vec![populate(0..6), read(0, 0..2)],
            vec![read(0, 3..5)],
            vec![truncate(FIRST + 2), truncate(FIRST + 5)],
        ],
    );
    all.had(|all| all.submitted, "had reads in flight");
}

#[test]
fn fault_in_against_unmap() {
    let all = directed(
        "fault_in_against_unmap",
        3_000,
        &stage(8),
        vec![map_file(0, 0..8, FIRST), advise(0, 0..8, MapAdvice::Random)],
        vec![
            vec![populate(0..8), read(0, 5..7)],
            vec![unmap(0, 1..3), map_copy(0, 1..3, 4)],
            vec![populate(2..6)],
        ],
    );
    all.had(|all| all.submitted, "had reads in flight");
}
