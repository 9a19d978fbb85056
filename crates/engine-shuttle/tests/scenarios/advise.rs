//! A fault against `madvise`, which splits and merges VMAs and shows nothing.

use crate::scene::{advise, directed, map_file, read};
use softfault_oracle::{MapAdvice, Op, Stage};

#[test]
fn fault_against_advise() {
    let stage = Stage::of_pages(8);
    directed(
        "fault_against_advise",
        4_000,
        &stage,
        vec![map_file(0, 0..8, 0)],
        vec![
            vec![read(0, 0..3)],
            vec![read(0, 2..5)],
            vec![
                advise(0, 1..3, MapAdvice::Random),
                advise(0, 2..4, MapAdvice::Sequential),
                advise(0, 1..4, MapAdvice::Normal),
            ],
        ],
    );
}

#[test]
fn fault_against_prefetch() {
    let stage = Stage::of_pages(8);
    directed(
        "fault_against_prefetch",
        4_000,
        &stage,
        vec![map_file(0, 0..8, 0), advise(0, 0..8, MapAdvice::Random)],
        vec![
            vec![read(0, 0..3)],
            vec![read(0, 2..4)],
            vec![Op::PrefetchFile { pages: 0..8 }, read(0, 5..6)],
        ],
    );
}
