//! A fault against `fork`, and parent and child against each other afterwards.

use crate::scene::{directed, map_file, map_zeros, read, unmap, write};
use softfault_oracle::{Op, Stage};

#[test]
fn fault_against_fork() {
    let stage = Stage::of_pages(4);
    directed(
        "fault_against_fork",
        5_000,
        &stage,
        vec![map_zeros(0, 0..2), map_file(0, 2..4, 0), write(0, 0..1)],
        vec![
            vec![write(0, 0..2), read(0, 1..3)],
            vec![read(0, 0..1), write(0, 0..1), read(0, 0..1)],
            vec![Op::Fork { space: 0 }, write(1, 0..2), read(1, 0..3)],
        ],
    );
}

#[test]
fn fork_against_unmap() {
    let stage = Stage::of_pages(4);
    directed(
        "fork_against_unmap",
        5_000,
        &stage,
        vec![map_zeros(0, 0..4), write(0, 0..3)],
        vec![
            vec![unmap(0, 1..2), map_zeros(0, 1..2), write(0, 1..2)],
            vec![write(0, 0..3)],
            vec![
                Op::Fork { space: 0 },
                write(1, 0..2),
                Op::Fork { space: 1 },
                read(2, 0..3),
                Op::Exit { space: 1 },
            ],
        ],
    );
}

/// A write after the fork is not the child's: also where a core knew
/// the page as its own to write to.
#[test]
fn writes_against_fork() {
    directed(
        "writes_against_fork",
        3_000,
        &Stage::of_pages(2),
        vec![map_zeros(0, 0..2), write(0, 0..2)],
        vec![
            vec![write(0, 0..2), write(0, 0..2), write(0, 0..2)],
            vec![
                Op::Fork { space: 0 },
                read(1, 0..2),
                read(1, 0..2),
                write(1, 0..1),
                read(0, 0..1),
            ],
        ],
    );
}

/// A page that is shared since a fork is copied while others read it.
#[test]
fn reads_against_copy() {
    directed(
        "reads_against_copy",
        3_000,
        &Stage::of_pages(2),
        vec![map_zeros(0, 0..2), write(0, 0..2), Op::Fork { space: 0 }],
        vec![
            vec![read(0, 0..1), read(0, 0..1), read(0, 0..1)],
            vec![write(0, 0..1), read(1, 0..1)],
            vec![read(1, 0..1), write(1, 0..1), read(1, 0..1)],
        ],
    );
}
