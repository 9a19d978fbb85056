//! A fault against `mremap`: at the old place, at the new one.

use crate::scene::{directed, map_file, map_zeros, read, remap, write};
use softfault_oracle::Stage;

#[test]
fn fault_against_remap() {
    let stage = Stage::of_pages(8);
    directed(
        "fault_against_remap",
        4_000,
        &stage,
        vec![map_file(0, 0..4, 0)],
        vec![
            vec![read(0, 0..3)],
            vec![read(0, 5..7), read(0, 1..2)],
            vec![remap(0, 1..3, 5), remap(0, 5..6, 1)],
        ],
    );
}

#[test]
fn anonymous_fault_against_remap() {
    let stage = Stage::of_pages(8);
    directed(
        "anonymous_fault_against_remap",
        5_000,
        &stage,
        vec![map_zeros(0, 0..4), write(0, 0..2)],
        vec![
            vec![write(0, 1..3), read(0, 5..7)],
            vec![read(0, 1..2), write(0, 5..6), read(0, 1..2)],
            vec![remap(0, 1..3, 5), remap(0, 5..6, 1)],
        ],
    );
}
