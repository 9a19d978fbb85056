//! Verbs against reads that do not end before the verb has: a fault that waits
//! for one holds nothing that the verb needs. Where it did, nobody could go on.

use crate::scene::{advise, explore, map_file, protect, read, remap, unmap};
use softfault_engine_shuttle::mm::Protection;
use softfault_oracle::{MapAdvice, Op, Reads, Stage, play_spaces};

/// A verb that needs the VMA of page 0, another one for each seed.
fn verb(seed: u64) -> Op {
    match seed % 5 {
        0 => unmap(0, 0..1),
        1 => protect(0, 0..1, Protection::None),
        2 => remap(0, 0..1, 4),
        3 => Op::Fork { space: 0 },
        _ => advise(0, 0..1, MapAdvice::Sequential),
    }
}

fn stage(policies: &str, seed: u64) -> Stage {
    Stage {
        queue: [0, 4][seed as usize / 20 % 2],
        policies: policies.parse().expect("policies"),
        reads: Reads::ByOperation,
        ..Stage::default()
    }
}

/// Every policy but `held` drops the lock for its first wait.
#[test]
fn verbs_do_not_wait_for_a_read() {
    explore("verbs_do_not_wait_for_a_read", 4_000, |seed| {
        let policies = [
            "retry=vma-lock",
            "retry=vma-lock+lock=rwsem+pin=no",
            "retry=mmap-lock",
            "retry=mmap-lock+lock=rwsem",
        ];
        let stage = stage(policies[seed as usize / 5 % 4], seed);
        let setup = [map_file(0, 0..4, 0), advise(0, 0..4, MapAdvice::Random)];
        let all = Op::Release { reads: 255 };
        let lists = [
            vec![read(0, 0..1)],
            vec![read(0, 0..1)],
            vec![verb(seed), all],
        ];
        play_spaces(&stage, &setup, &lists);
    });
}

/// Ours drops it for every wait: also where the folio that was read is gone again.
#[test]
fn verbs_do_not_wait_for_a_second_read() {
    explore("verbs_do_not_wait_for_a_second_read", 4_000, |seed| {
        let policies = ["retry=vma-lock+pin=no", "retry=vma-lock+pin=no+lock=rwsem"];
        let stage = stage(policies[seed as usize / 5 % 2], seed);
        let setup = [map_file(0, 0..4, 0), advise(0, 0..4, MapAdvice::Random)];
        let all = Op::Release { reads: 255 };
        let lists = [
            vec![read(0, 0..1)],
            vec![Op::Release { reads: 1 }, Op::Evict, verb(seed), all],
        ];
        play_spaces(&stage, &setup, &lists);
    });
}
