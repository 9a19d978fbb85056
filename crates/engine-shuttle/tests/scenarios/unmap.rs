//! A fault against `munmap`: of its own VMA, of a part of it, of a neighbour;
//! and against a mapping that takes the slot of the VMA that went.

use crate::scene::{directed, map_file, map_zeros, read, unmap, write};
use softfault_oracle::Stage;

#[test]
fn fault_against_unmap() {
    let stage = Stage::of_pages(6);
    directed(
        "fault_against_unmap",
        4_000,
        &stage,
        vec![map_file(0, 0..4, 0)],
        vec![
            vec![read(0, 0..3)],
            vec![read(0, 1..4)],
            vec![unmap(0, 1..3), map_file(0, 1..2, 5)],
        ],
    );
}

#[test]
fn anonymous_fault_against_unmap() {
    let stage = Stage::of_pages(6);
    directed(
        "anonymous_fault_against_unmap",
        5_000,
        &stage,
        vec![map_zeros(0, 0..4)],
        vec![
            vec![write(0, 0..3), read(0, 1..3)],
            vec![write(0, 1..2), read(0, 1..2)],
            vec![unmap(0, 1..3), map_zeros(0, 1..2)],
        ],
    );
}

/// Two spaces share the slab: a slot that one gave up is the other's.
#[test]
fn fault_against_reuse_in_another_space() {
    let stage = Stage {
        spaces: 2,
        pages: 4,
        ..Stage::default()
    };
    directed(
        "fault_against_reuse_in_another_space",
        5_000,
        &stage,
        vec![map_file(0, 0..2, 0), map_zeros(1, 2..3)],
        vec![
            vec![read(0, 0..2), read(0, 0..1)],
            vec![unmap(0, 0..2)],
            vec![map_zeros(1, 0..2), write(1, 0..1), unmap(1, 2..3)],
        ],
    );
}

/// The frame of a page that goes is somebody else's next: not while a core still
/// reads it.
#[test]
fn access_against_reuse_of_its_frame() {
    directed(
        "access_against_reuse_of_its_frame",
        4_000,
        &Stage::of_pages(4),
        vec![map_zeros(0, 0..1), map_zeros(0, 2..4), write(0, 0..1)],
        vec![
            vec![read(0, 0..1), read(0, 0..1), read(0, 0..1)],
            vec![unmap(0, 0..1)],
            vec![write(0, 2..4)],
        ],
    );
}
