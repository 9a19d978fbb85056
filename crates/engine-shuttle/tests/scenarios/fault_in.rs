//! Ranges that are brought in with reads in flight, against changes of their mappings.

use crate::scene::{advise, directed, manage, map_copy, map_file, read, truncate, unmap};
use softfault_oracle::{MapAdvice, MemoryVerb, Op, Stage};

fn populate(pages: core::ops::Range<usize>) -> Op {
    manage(0, pages, MemoryVerb::PopulateRead)
}

/// Two threads bring the same pages in, one touches them, one throws them away.
#[test]
fn fault_in_against_eviction() {
    let stage = Stage::of_pages(8);
    directed(
        "fault_in_against_eviction",
        3_000,
        &stage,
        vec![
            map_file(0, 0..8, 0),
            advise(0, 0..8, MapAdvice::Random),
            read(0, 2..3),
        ],
        vec![
            vec![populate(0..6), read(0, 1..3)],
            vec![populate(1..8)],
            vec![Op::Evict, read(0, 4..6), Op::InvalidateFile { pages: 0..8 }],
        ],
    );
}

#[test]
fn fault_in_against_truncate() {
    let stage = Stage {
        hole: 2..3,
        ..Stage::of_pages(6)
    };
    directed(
        "fault_in_against_truncate",
        3_000,
        &stage,
        vec![map_file(0, 0..6, 0), advise(0, 0..3, MapAdvice::Random)],
        vec![
            vec![populate(0..6), read(0, 0..2)],
            vec![read(0, 3..5)],
            vec![truncate(2), truncate(5)],
        ],
    );
}

#[test]
fn fault_in_against_unmap() {
    let stage = Stage::of_pages(8);
    directed(
        "fault_in_against_unmap",
        3_000,
        &stage,
        vec![map_file(0, 0..8, 0)],
        vec![
            vec![populate(0..8), read(0, 5..7)],
            vec![unmap(0, 1..3), map_copy(0, 1..3, 4)],
            vec![populate(2..6)],
        ],
    );
}
