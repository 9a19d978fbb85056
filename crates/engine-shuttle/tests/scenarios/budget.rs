//! A fault against a budget that changes, and anonymous memory where none is
//! left.

use crate::scene::{advise, directed, map_file, map_zeros, read, short_of_memory, unmap, write};
use softfault_oracle::{MapAdvice, Op, Stage};

#[test]
fn fault_against_budget_change() {
    let stage = Stage {
        pages: 8,
        free: Some(40),
        ..Stage::default()
    };
    directed(
        "fault_against_budget_change",
        4_000,
        &stage,
        vec![map_file(0, 0..8, 0), advise(0, 0..8, MapAdvice::Random)],
        vec![
            vec![read(0, 0..4)],
            vec![read(0, 2..6)],
            vec![
                Op::Memory { more: 40 },
                Op::Memory { more: 0 },
                Op::Memory { more: 80 },
            ],
        ],
    );
}

#[test]
fn anonymous_memory_runs_out() {
    let stage = Stage {
        pages: 8,
        free: Some(10),
        may_be_short: true,
        ..Stage::default()
    };
    short_of_memory(
        "anonymous_memory_runs_out",
        1_000,
        &stage,
        vec![map_zeros(0, 0..4), map_zeros(0, 4..8)],
        vec![
            vec![write(0, 0..4), read(0, 2..4)],
            vec![write(0, 4..7), read(0, 0..2)],
            vec![Op::Fork { space: 0 }, write(1, 0..2)],
        ],
    );
}

/// One thread waits for memory, another gives back all that it has, once.
#[test]
fn fault_against_memory_given_back() {
    let stage = Stage {
        pages: 22,
        free: Some(14),
        ..Stage::default()
    };
    directed(
        "fault_against_memory_given_back",
        4_000,
        &stage,
        vec![map_zeros(0, 0..20), write(0, 0..20), map_file(0, 20..22, 0)],
        vec![vec![read(0, 20..21)], vec![unmap(0, 0..20)]],
    );
}
