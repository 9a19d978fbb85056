//! Pages that go to swap and come back: a fault, a write and every verb against
//! the eviction of the same page, and against the read that brings it back.
//!
//! A write that is lost shows as an older word. A page that was read ahead and is old by
//! now shows as an older word too, or as the poison of a slot that was freed.

use crate::scene::{directed, manage, map_copy, map_zeros, read, remap, unmap, write};
use softfault_oracle::{MemoryVerb, Op, Stage};

/// So many pages, and swap for all of them.
fn swapping(pages: usize) -> Stage {
    Stage {
        slots: 64,
        ..Stage::of_pages(pages)
    }
}

/// So many pages that were written, and are in swap when the threads begin.
fn in_swap(pages: usize) -> Vec<Op> {
    vec![map_zeros(0, 0..pages), write(0, 0..pages), Op::Evict]
}

#[test]
fn fault_against_eviction() {
    directed(
        "fault_against_eviction",
        1_200,
        &swapping(2),
        vec![map_zeros(0, 0..2), write(0, 0..2)],
        vec![
            vec![read(0, 0..1), read(0, 0..2)],
            vec![read(0, 1..2), read(0, 0..1)],
            vec![Op::Evict, Op::Evict],
        ],
    );
}

/// A write between the copy-out and the drop.
#[test]
fn write_against_eviction() {
    directed(
        "write_against_eviction",
        2_500,
        &swapping(2),
        vec![map_zeros(0, 0..2), write(0, 0..2)],
        vec![
            vec![write(0, 0..1), write(0, 0..2), read(0, 0..1)],
            vec![write(0, 1..2), read(0, 0..2)],
            vec![Op::Evict, Op::Evict],
        ],
    );
}

/// The page has a clean copy in swap, and is dropped without a write: not if it
/// was written to.
#[test]
fn write_against_clean_drop() {
    let mut setup = in_swap(2);
    setup.push(read(0, 0..2));
    directed(
        "write_against_clean_drop",
        2_000,
        &swapping(2),
        setup,
        vec![
            vec![write(0, 0..1), read(0, 0..1)],
            vec![write(0, 0..1), read(0, 0..2)],
            vec![Op::Evict, read(0, 0..1), Op::Evict],
        ],
    );
}

#[test]
fn two_evict_pages_that_two_write() {
    directed(
        "two_evict_pages_that_two_write",
        1_200,
        &swapping(4),
        vec![map_zeros(0, 0..4), write(0, 0..4)],
        vec![
            vec![write(0, 0..2), read(0, 0..4)],
            vec![write(0, 1..3)],
            vec![Op::Evict, write(0, 2..4)],
            vec![manage(0, 0..4, MemoryVerb::PageOut), Op::Evict],
        ],
    );
}

#[test]
fn two_faults_on_one_swapped_page() {
    directed(
        "two_faults_on_one_swapped_page",
        1_600,
        &swapping(2),
        in_swap(2),
        vec![
            vec![read(0, 0..1), write(0, 0..1)],
            vec![write(0, 0..1), read(0, 0..1)],
            vec![read(0, 0..1)],
        ],
    );
}

#[test]
fn swap_in_against_unmap() {
    directed(
        "swap_in_against_unmap",
        1_600,
        &swapping(4),
        in_swap(4),
        vec![
            vec![read(0, 0..3), read(0, 1..2)],
            vec![write(0, 1..2), read(0, 2..4)],
            vec![unmap(0, 1..3), map_zeros(0, 1..2), read(0, 1..2)],
        ],
    );
}

/// A page that is being written when it is unmapped: the slot is the next page's.
#[test]
fn eviction_against_unmap() {
    directed(
        "eviction_against_unmap",
        1_600,
        &swapping(4),
        vec![map_zeros(0, 0..4), write(0, 0..4)],
        vec![
            vec![Op::Evict, read(0, 0..4)],
            vec![unmap(0, 1..3), map_zeros(0, 1..3), write(0, 1..3)],
            vec![Op::Evict, Op::Evict],
        ],
    );
}

#[test]
fn swap_in_against_dont_need() {
    directed(
        "swap_in_against_dont_need",
        1_600,
        &swapping(4),
        in_swap(4),
        vec![
            vec![read(0, 0..3), read(0, 1..2)],
            vec![write(0, 1..2), read(0, 1..3)],
            vec![
                manage(0, 1..3, MemoryVerb::DontNeed),
                read(0, 1..3),
                manage(0, 0..2, MemoryVerb::DontNeed),
            ],
        ],
    );
}

#[test]
fn eviction_against_dont_need() {
    directed(
        "eviction_against_dont_need",
        1_600,
        &swapping(3),
        vec![map_zeros(0, 0..3), write(0, 0..3)],
        vec![
            vec![Op::Evict, Op::Evict],
            vec![manage(0, 0..2, MemoryVerb::DontNeed), write(0, 1..2)],
            vec![write(0, 0..3), read(0, 0..3)],
        ],
    );
}

#[test]
fn swap_in_against_remap() {
    directed(
        "swap_in_against_remap",
        1_200,
        &swapping(8),
        in_swap(4),
        vec![
            vec![write(0, 1..3), read(0, 5..7)],
            vec![read(0, 1..2), write(0, 5..6), Op::Evict],
            vec![remap(0, 1..3, 5), remap(0, 5..6, 1)],
        ],
    );
}

/// The budget is lowered by 40 pages, with 44 free above the floor: of the eight that come from swap some have to go, and others
/// wait until it is raised again.
#[test]
fn swap_in_against_budget_change() {
    let stage = Stage {
        free: Some(44),
        ..swapping(8)
    };
    let all = directed(
        "swap_in_against_budget_change",
        800,
        &stage,
        [in_swap(8), vec![Op::Memory { more: 160 }]].concat(),
        vec![
            vec![write(0, 0..4), read(0, 0..2)],
            vec![read(0, 2..8)],
            vec![Op::Memory { more: 0 }, Op::Memory { more: 160 }],
        ],
    );
    all.had(|all| all.lowered, "lowered below what was charged")
        .had(|all| all.pages_out, "written to swap");
}

/// Pages beside the one that is touched are read ahead, and written and evicted
/// again before the folio that was read is mapped.
#[test]
fn read_ahead_against_write_and_eviction() {
    directed(
        "read_ahead_against_write_and_eviction",
        2_500,
        &swapping(8),
        in_swap(8),
        vec![
            vec![read(0, 0..3), read(0, 3..6)],
            vec![write(0, 3..5), Op::Evict, write(0, 3..4), Op::Evict],
            vec![read(0, 4..5), read(0, 3..4)],
        ],
    );
}

#[test]
fn lock_against_eviction() {
    directed(
        "lock_against_eviction",
        1_600,
        &swapping(4),
        in_swap(4),
        vec![
            vec![
                manage(0, 0..2, MemoryVerb::Lock),
                read(0, 0..2),
                write(0, 0..1),
                manage(0, 0..1, MemoryVerb::Unlock),
                read(0, 0..2),
            ],
            vec![write(0, 0..4)],
            vec![Op::Evict, Op::Evict, Op::Evict],
        ],
    );
}

#[test]
fn free_against_write() {
    directed(
        "free_against_write",
        2_000,
        &swapping(3),
        vec![map_zeros(0, 0..3), write(0, 0..3)],
        vec![
            vec![manage(0, 0..2, MemoryVerb::Free), read(0, 0..2)],
            vec![write(0, 0..1), read(0, 0..1), write(0, 1..2), read(0, 1..2)],
            vec![Op::Evict, Op::Evict],
        ],
    );
}

/// Freed in swap already.
#[test]
fn free_against_swap_in() {
    directed(
        "free_against_swap_in",
        1_200,
        &swapping(3),
        in_swap(3),
        vec![
            vec![manage(0, 0..2, MemoryVerb::Free), read(0, 0..2)],
            vec![write(0, 0..1), read(0, 0..2)],
            vec![Op::Evict, read(0, 1..3)],
        ],
    );
}

#[test]
fn populate_against_eviction() {
    directed(
        "populate_against_eviction",
        1_200,
        &swapping(4),
        in_swap(3),
        vec![
            vec![manage(0, 0..3, MemoryVerb::PopulateRead), read(0, 0..2)],
            vec![manage(0, 1..3, MemoryVerb::PopulateWrite), write(0, 1..2)],
            vec![Op::Evict, manage(0, 0..3, MemoryVerb::Cold), Op::Evict],
        ],
    );
}

/// A private copy goes to swap where it was written to, and comes from the file
/// where it was not.
#[test]
fn private_copy_against_eviction() {
    directed(
        "private_copy_against_eviction",
        2_000,
        &swapping(4),
        vec![map_copy(0, 0..4, 1), write(0, 1..2)],
        vec![
            vec![read(0, 0..3), write(0, 0..1), read(0, 0..1)],
            vec![write(0, 1..3), read(0, 1..4)],
            vec![Op::Evict, manage(0, 1..2, MemoryVerb::DontNeed), Op::Evict],
        ],
    );
}

/// Absent, locked and absent again while a fault looks: its bytes are the file's, and no zeros.
#[test]
fn private_copy_against_two_that_drop_it() {
    directed(
        "private_copy_against_two_that_drop_it",
        4_000,
        &swapping(2),
        vec![map_copy(0, 0..2, 1), read(0, 0..2)],
        vec![
            vec![read(0, 0..2), read(0, 0..2)],
            vec![manage(0, 0..2, MemoryVerb::DontNeed)],
            vec![manage(0, 0..2, MemoryVerb::PageOut), Op::Evict],
        ],
    );
}
