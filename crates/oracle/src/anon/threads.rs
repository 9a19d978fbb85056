//! Several threads that read and write at a time, each by its plan.

use super::model::{AnonModel, Expected};
use super::op::ARENA_PAGES;
use super::world::Access;
use crate::random::Random;
use crate::together::together;
use softfault_engine::PAGE_SIZE;

/// Accesses of each thread.
const STEPS: usize = 60;

/// One access of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// A byte of the arena.
    pub at: usize,
    /// The byte to write, or to read.
    pub value: u8,
    /// Whether it is written.
    pub write: bool,
    /// The expected result of the access.
    pub expected: Expected,
}

/// A plan for each thread: they write bytes of their own, next to those of others, and
/// read them back.
pub(super) fn plans(
    model: &mut AnonModel,
    space: usize,
    threads: usize,
    seed: u32,
) -> Vec<Vec<Step>> {
    let mut random = Random::new(seed.into());
    // A few pages, so that threads meet.
    let pages: Vec<_> = (0..6).map(|_| random.below(ARENA_PAGES)).collect();
    let mut plans = Vec::new();
    for thread in 0..threads {
        let mut plan = Vec::with_capacity(STEPS);
        for _ in 0..STEPS {
            let page = pages[random.below(pages.len())];
            let write = random.below(3) > 0;
            let lane = random.below(PAGE_SIZE / threads) * threads + thread;
            let at = page * PAGE_SIZE + lane;
            let expected = model.expected(space, page, write);
            let mut value = random.below(256) as u8;
            if model.is_free(space, page) {
                continue;
            }
            match (expected, write) {
                (Expected::Done, true) => model.write(space, page)[lane] = value,
                (Expected::Done, false) => value = model.touch(space, page)[lane],
                _ => {}
            }
            plan.push(Step {
                at,
                value,
                write,
                expected,
            });
        }
        plans.push(plan);
    }
    plans
}

/// Lets a thread for each of the plans obey it. `whole`: an access that is not served
/// is an answer.
///
/// # Panics
/// If an access has another result.
pub fn obey_plans<'a>(
    space: usize,
    plans: &[Vec<Step>],
    whole: bool,
    access: impl Fn() -> Box<dyn Access + 'a> + Sync,
) {
    let access = &access;
    together(plans.iter().map(|plan| {
        move || {
            let mut way = access();
            for step in plan {
                if step.expected == Expected::Done || whole {
                    obey(&mut *way, space, step);
                }
            }
        }
    }));
}

fn obey(way: &mut dyn Access, space: usize, step: &Step) {
    let mut byte = [step.value];
    let found = match step.write {
        true => way.write(space, step.at, &byte),
        false => way.read(space, step.at, &mut byte),
    };
    assert_eq!(found, step.expected, "space {space} at {:#x}", step.at);
    if found == Expected::Done {
        assert_eq!(byte[0], step.value, "space {space} at {:#x}", step.at);
    }
}
