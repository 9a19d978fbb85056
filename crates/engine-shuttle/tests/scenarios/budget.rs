//! A fault against a budget that changes, and anonymous memory where none is
//! left.

use crate::scene::{
    advise, directed, explore, map_file, map_zeros, read, short_of_memory, unmap, write,
};
use softfault_engine_shuttle::PAGE_SIZE;
use softfault_engine_shuttle::anon::Anonymous;
use softfault_engine_shuttle::budget::FLOOR;
use softfault_engine_shuttle::policy::Policies;
use softfault_oracle::{MapAdvice, Op, Rig, Stage, TestSwap};
use sync::Arc;
use sync::thread::spawn;

/// The budget is lowered by 20 pages, with 14 free above the floor: six or seven have to go.
#[test]
fn fault_against_budget_change() {
    let stage = Stage {
        pages: 8,
        free: Some(14),
        ..Stage::default()
    };
    let all = directed(
        "fault_against_budget_change",
        4_000,
        &stage,
        vec![
            map_file(0, 0..8, 0),
            advise(0, 0..8, MapAdvice::Random),
            read(0, 0..8),
            Op::Memory { more: 80 },
        ],
        vec![
            vec![read(0, 0..4)],
            vec![read(0, 2..6)],
            vec![
                Op::Memory { more: 0 },
                Op::Memory { more: 40 },
                Op::Memory { more: 80 },
            ],
        ],
    );
    all.had(|all| all.lowered, "lowered below what was charged")
        .had(|all| all.evicted, "evicted");
}

#[test]
fn anonymous_memory_runs_out() {
    let stage = Stage {
        pages: 8,
        free: Some(10),
        may_be_short: true,
        ..Stage::default()
    };
    let all = short_of_memory(
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
    all.had(|all| all.short, "without memory");
}

/// One thread waits for memory, another gives back all that it has, once.
#[test]
fn fault_against_memory_given_back() {
    let stage = Stage {
        pages: 22,
        free_to_files: Some(14),
        ..Stage::default()
    };
    let all = directed(
        "fault_against_memory_given_back",
        4_000,
        &stage,
        vec![map_zeros(0, 0..20), write(0, 0..20), map_file(0, 20..22, 0)],
        vec![vec![read(0, 20..21)], vec![unmap(0, 0..20)]],
    );
    all.had(|all| all.memory_waits, "waited for memory");
}

/// Others give memory back and take it again while a fork makes room: it goes on, for there are pages to evict.
#[test]
fn fork_against_memory_that_comes_and_goes() {
    const PAGES: usize = 60;
    const GIVEN: u64 = 200;
    explore("fork_against_memory_that_comes_and_goes", 4_000, |_| {
        let swap = TestSwap::with_queue(4 * PAGES, 0);
        let rig = Arc::new(Rig::with_swap(2048, Policies::default(), &swap));
        let budget = rig.node.budget.clone();
        let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
        rig.map_anonymous(&anon);
        let memory = anon.addresses();
        for addr in memory.clone().step_by(PAGE_SIZE) {
            rig.write(addr, &[7]).unwrap();
        }
        // Less than the pages of the child, but room for its window.
        let taken = budget.free() - FLOOR - 20;
        assert!(budget.try_charge(taken, 0));
        let other = {
            let budget = budget.clone();
            spawn(move || {
                let mut left = taken;
                for _ in 0..150 {
                    budget.uncharge(GIVEN);
                    left -= GIVEN;
                    if budget.try_charge(GIVEN, 0) {
                        left += GIVEN;
                    }
                }
                left
            })
        };
        let child = rig.another_space();
        rig.space.fork(&child).unwrap();
        assert_eq!(rig.node.stats.memory_waits.get(), 0, "it waits for others");
        budget.uncharge(other.join().unwrap());
        child.exit(|_, _| {});
        drop(child);
        rig.unmap(memory);
        drop((anon, budget));
        Arc::into_inner(rig).unwrap().finish();
    });
}
