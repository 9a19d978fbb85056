//! A fault against a file that becomes shorter, and longer again.

use crate::scene::{advise, directed, map_file, read, truncate};
use softfault_oracle::{MapAdvice, Op, Stage};

#[test]
fn fault_against_truncate() {
    let stage = Stage::of_pages(4);
    directed(
        "fault_against_truncate",
        6_000,
        &stage,
        vec![map_file(0, 0..4, 0), advise(0, 0..2, MapAdvice::Random)],
        vec![
            vec![read(0, 0..4)],
            vec![read(0, 1..2), read(0, 1..2)],
            vec![truncate(1), truncate(3)],
        ],
    );
}

#[test]
fn reclaim_against_truncate() {
    let stage = Stage::of_pages(4);
    directed(
        "reclaim_against_truncate",
        4_000,
        &stage,
        vec![map_file(0, 0..4, 0), read(0, 0..3)],
        vec![
            vec![Op::Evict, read(0, 0..2)],
            vec![read(0, 1..3)],
            vec![truncate(1), truncate(2)],
        ],
    );
}

/// Nothing is cached when the file is cut off, and a fault is just about to
/// change that. It is in a hole: no read tells it where the file ends.
#[test]
fn first_fault_against_truncate() {
    let stage = Stage {
        hole: 1..2,
        ..Stage::of_pages(2)
    };
    directed(
        "first_fault_against_truncate",
        5_000,
        &stage,
        vec![map_file(0, 0..2, 0), advise(0, 0..2, MapAdvice::Random)],
        vec![
            vec![read(0, 1..2)],
            vec![truncate(1), read(0, 1..2), read(0, 1..2)],
        ],
    );
}
