//! A fault against reclaim: of all pages, and of those it needs itself, where
//! too little memory is left for all pages at a time.

use crate::scene::{advise, directed, map_file, read};
use softfault_oracle::{MapAdvice, Op, Stage};

#[test]
fn fault_against_reclaim() {
    let stage = Stage::of_pages(4);
    directed(
        "fault_against_reclaim",
        6_000,
        &stage,
        vec![map_file(0, 0..4, 0), advise(0, 0..2, MapAdvice::Random)],
        vec![
            vec![read(0, 0..3), read(0, 0..1)],
            vec![read(0, 0..2)],
            vec![Op::Evict, Op::Evict],
        ],
    );
}

/// Each page wants to be mapped where only two or three fit: a fault that reads begins where 34 pages are free, and the first one takes
/// two for the page table.
#[test]
fn faults_short_of_memory() {
    let stage = Stage {
        pages: 8,
        free_to_files: Some(37),
        ..Stage::default()
    };
    let all = directed(
        "faults_short_of_memory",
        4_000,
        &stage,
        vec![map_file(0, 0..8, 0), advise(0, 0..8, MapAdvice::Random)],
        vec![
            vec![read(0, 0..5)],
            vec![read(0, 3..8)],
            vec![read(0, 7..8), read(0, 0..4)],
        ],
    );
    all.had(|all| all.evicted, "evicted for want of memory")
        .had(|all| all.memory_waits, "waited for memory");
}

#[test]
fn fault_against_invalidate() {
    let stage = Stage::of_pages(4);
    directed(
        "fault_against_invalidate",
        4_000,
        &stage,
        vec![map_file(0, 0..4, 0), advise(0, 0..2, MapAdvice::Random)],
        vec![
            vec![read(0, 0..3)],
            vec![Op::Evict, read(0, 1..2)],
            vec![
                Op::InvalidateFile { pages: 0..2 },
                Op::InvalidateFile { pages: 1..4 },
            ],
        ],
    );
}

/// Pinned pages stay under any eviction.
#[test]
fn pin_against_reclaim() {
    let stage = Stage::of_pages(4);
    directed(
        "pin_against_reclaim",
        4_000,
        &stage,
        vec![map_file(0, 0..4, 0)],
        vec![
            vec![Op::PinFile { pages: 0..2 }, read(0, 0..1)],
            vec![Op::PinFile { pages: 1..4 }],
            vec![Op::Evict, Op::InvalidateFile { pages: 0..3 }],
        ],
    );
}
