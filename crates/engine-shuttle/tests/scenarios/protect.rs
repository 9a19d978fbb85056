//! A fault against `mprotect`, and a core's buffered translations against it.

use crate::scene::{directed, map_file, map_zeros, protect, read, write};
use softfault_engine_shuttle::mm::Protection;
use softfault_oracle::Stage;

#[test]
fn fault_against_protect() {
    let stage = Stage::of_pages(4);
    directed(
        "fault_against_protect",
        4_000,
        &stage,
        vec![map_file(0, 0..4, 0)],
        vec![
            vec![read(0, 0..3), read(0, 1..2)],
            vec![read(0, 1..3)],
            vec![
                protect(0, 1..3, Protection::None),
                protect(0, 1..2, Protection::Read),
            ],
        ],
    );
}

#[test]
fn anonymous_fault_against_protect() {
    let stage = Stage::of_pages(4);
    directed(
        "anonymous_fault_against_protect",
        5_000,
        &stage,
        vec![map_zeros(0, 0..4)],
        vec![
            vec![write(0, 0..2), write(0, 1..2), read(0, 1..2)],
            vec![read(0, 1..2), write(0, 1..2), read(0, 1..2)],
            vec![
                protect(0, 1..3, Protection::Read),
                protect(0, 1..2, Protection::None),
                protect(0, 1..2, Protection::ReadWrite),
            ],
        ],
    );
}
