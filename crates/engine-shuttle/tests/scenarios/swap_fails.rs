//! Swap that fails, or is full: a touch has its error, and no page shows bytes
//! that were never its own. Pages in swap can still be read when it works again.

use crate::scene::{directed, manage, map_zeros, read, short_of_memory, unmap, write};
use softfault_oracle::{MemoryVerb, Op, Stage};

fn failing(pages: usize) -> Stage {
    Stage {
        slots: 64,
        may_fail: true,
        ..Stage::of_pages(pages)
    }
}

#[test]
fn swap_in_that_fails() {
    directed(
        "swap_in_that_fails",
        1_600,
        &failing(3),
        vec![
            map_zeros(0, 0..3),
            write(0, 0..3),
            Op::Evict,
            Op::FailSwapReads { reads: 2 },
        ],
        vec![
            vec![read(0, 0..2), read(0, 0..1)],
            vec![write(0, 0..1), read(0, 0..3)],
            vec![read(0, 1..2), unmap(0, 2..3)],
        ],
    );
}

/// The page stays, as it is and as it is written to.
#[test]
fn eviction_that_fails() {
    directed(
        "eviction_that_fails",
        1_600,
        &failing(3),
        vec![
            map_zeros(0, 0..3),
            write(0, 0..3),
            Op::FailSwapWrites { writes: 2 },
        ],
        vec![
            vec![write(0, 0..2), read(0, 0..3)],
            vec![Op::Evict, read(0, 0..2), Op::Evict],
            vec![manage(0, 0..3, MemoryVerb::PageOut), write(0, 2..3)],
        ],
    );
}

#[test]
fn swap_is_full() {
    let stage = Stage {
        slots: 2,
        ..Stage::of_pages(4)
    };
    directed(
        "swap_is_full",
        1_600,
        &stage,
        vec![map_zeros(0, 0..4), write(0, 0..4)],
        vec![
            vec![write(0, 0..2), read(0, 0..4)],
            vec![Op::Evict, read(0, 1..3), Op::Evict],
            vec![
                unmap(0, 3..4),
                Op::Fork { space: 0 },
                write(1, 0..1),
                read(1, 0..3),
            ],
        ],
    );
}

/// Neither memory nor swap: touches end, and present pages stay readable.
#[test]
fn swap_and_memory_run_out() {
    let stage = Stage {
        slots: 2,
        free: Some(3),
        may_be_short: true,
        ..Stage::of_pages(8)
    };
    let all = short_of_memory(
        "swap_and_memory_run_out",
        500,
        &stage,
        vec![map_zeros(0, 0..8), write(0, 0..2)],
        vec![vec![write(0, 1..4), read(0, 0..1)], vec![write(0, 4..7)]],
    );
    all.had(|all| all.pages_out, "written to swap")
        .had(|all| all.short, "without memory");
}
