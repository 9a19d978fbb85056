//! `fork` while pages are evicted, and while slots of swap are shared: then both
//! sides write.

use crate::scene::{directed, manage, map_copy, map_zeros, read, unmap, write};
use softfault_oracle::{MemoryVerb, Op, Stage};

fn swapping(pages: usize) -> Stage {
    Stage {
        slots: 64,
        ..Stage::of_pages(pages)
    }
}

#[test]
fn fork_against_eviction() {
    directed(
        "fork_against_eviction",
        2_000,
        &swapping(3),
        vec![map_zeros(0, 0..3), write(0, 0..2)],
        vec![
            vec![write(0, 0..2), read(0, 0..3)],
            vec![Op::Fork { space: 0 }, write(1, 0..1), read(1, 0..3)],
            vec![Op::Evict, Op::Evict],
        ],
    );
}

#[test]
fn swap_in_against_fork() {
    directed(
        "swap_in_against_fork",
        2_000,
        &swapping(3),
        vec![map_zeros(0, 0..3), write(0, 0..3), Op::Evict],
        vec![
            vec![write(0, 0..1), read(0, 0..3)],
            vec![read(0, 0..2), Op::Evict],
            vec![Op::Fork { space: 0 }, read(1, 0..2), write(1, 0..1)],
        ],
    );
}

/// One slot, two pages.
#[test]
fn writes_on_both_sides_of_a_slot() {
    directed(
        "writes_on_both_sides_of_a_slot",
        2_000,
        &swapping(2),
        vec![
            map_zeros(0, 0..2),
            write(0, 0..2),
            Op::Evict,
            Op::Fork { space: 0 },
        ],
        vec![
            vec![write(0, 0..1), read(0, 0..2), read(1, 0..1)],
            vec![write(1, 0..1), read(1, 0..2), read(0, 0..1)],
            vec![Op::Evict, Op::Evict],
        ],
    );
}

/// The slot's last page but one goes with its space.
#[test]
fn exit_against_a_shared_slot() {
    directed(
        "exit_against_a_shared_slot",
        2_000,
        &swapping(3),
        vec![map_zeros(0, 0..3), write(0, 0..2), Op::Evict],
        vec![
            vec![
                Op::Fork { space: 0 },
                Op::Fork { space: 1 },
                read(1, 0..1),
                Op::Exit { space: 1 },
                read(2, 0..2),
            ],
            vec![read(0, 0..2), unmap(0, 0..1), read(2, 0..1)],
            vec![Op::Evict, manage(0, 0..2, MemoryVerb::PageOut)],
        ],
    );
}

/// A private copy of a file, written in part, in swap in part.
#[test]
fn fork_of_a_private_copy() {
    directed(
        "fork_of_a_private_copy",
        1_600,
        &swapping(3),
        vec![map_copy(0, 0..3, 2), write(0, 1..2), Op::Evict],
        vec![
            vec![write(0, 0..2), read(0, 0..3)],
            vec![Op::Evict, read(0, 0..2)],
            vec![Op::Fork { space: 0 }, write(1, 0..2), read(1, 0..3)],
        ],
    );
}
