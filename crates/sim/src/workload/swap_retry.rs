//! Document 002's swap side: many threads come back from waiting for swap, while
//! others need `mmap_lock` for write.
//!
//! | threads | priority | do |
//! |---|---|---|
//! | N background | low (nice 10) | a round after the other: 16 pages in order, then as many by themselves; half are written |
//! | one | normal | maps four pages, writes to them, reads a page of the memory and unmaps, each millisecond |
//! | one | normal | a fork of the space every 20 ms, given up at once |
//!
//! Which pages a round touches depends on the seed and the round's number only. All
//! memory is written once before the clock starts. The document's is a phone, whose
//! memory it does not name; sizes here are four budgets of 64 MiB.

use super::gang::{Member, Task};
use super::memory::{self, Memory};
use super::tally::Waited;
use super::warm_start::{NICER, PRIORITY_PAUSE, forks};
use crate::job::{Job, PAGE};
use crate::random::{mix, uniform};
use crate::world;
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages that a round touches.
const ROUND_PAGES: u64 = 32;
/// Pages of the memory that is mapped and unmapped.
const MAPPED: u64 = 4;
/// The budget.
const MEMORY: u64 = 64 << 20;
/// How many budgets are mapped.
const TIMES: u64 = 4;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.memory = MEMORY;
    job.region = TIMES * MEMORY;
    job.swap = 2 * job.region;
    job.seconds = 0.25;
}

/// The threads, two of them beside the workers.
pub fn tasks(job: &Job, memory: Arc<Memory>) -> Vec<Task> {
    let next = Arc::new(AtomicU64::new(0));
    let seed = job.seed;
    let background = |number| {
        let (next, memory) = (next.clone(), memory.clone());
        Task {
            name: format!("background {number}"),
            nice: NICER,
            works: true,
            body: Box::new(move |member: &mut Member| touches(member, seed, &memory, &next)),
        }
    };
    let mut tasks: Vec<Task> = (0..job.threads).map(background).collect();
    let read = memory.clone();
    tasks.push(Task {
        name: "maps".to_owned(),
        nice: 0,
        works: false,
        body: Box::new(move |member| maps(member, seed, &read)),
    });
    let fork = Task {
        name: "fork".to_owned(),
        nice: 0,
        works: false,
        body: Box::new(forks),
    };
    tasks.extend(job.forks.then_some(fork));
    tasks
}

/// In the background.
fn touches(
    member: &mut Member,
    seed: u64,
    memory: &Memory,
    next: &AtomicU64,
) -> Result<(), String> {
    while !member.stopped() {
        // Relaxed: a number and nothing else.
        let round = next.fetch_add(1, Relaxed);
        let (word, _) = memory::draw(seed, 0, round * ROUND_PAGES);
        let first = uniform(word, memory.count());
        for number in 0..ROUND_PAGES {
            if member.stopped() {
                return Ok(());
            }
            let (word, writes) = memory::draw(seed, 0, round * ROUND_PAGES + number);
            let page = match number < ROUND_PAGES / 2 {
                true => (first + number) % memory.count(),
                false => uniform(word, memory.count()),
            };
            member.access(memory, page, writes, Waited::Touch)?;
        }
        member.tally.rounds += 1;
    }
    Ok(())
}

/// The one whose waiting a person would see.
fn maps(member: &mut Member, seed: u64, memory: &Memory) -> Result<(), String> {
    // One mapping at least, however short the run.
    for round in 0.. {
        if round > 0 && member.stopped() {
            break;
        }
        let map = member.timed(Waited::Map, |member| {
            member.rig.map_anonymous(MAPPED * PAGE)
        })?;
        for page in 0..MAPPED {
            let addr = map.start() + (page * PAGE) as usize;
            let rig = member.rig.clone();
            let written = member.timed(Waited::PriorityTouch, |member| {
                rig.write(&mut member.view, addr, round)
            });
            written.map_err(|error| format!("cannot write to a new mapping: {error:?}"))?;
        }
        let page = uniform(mix(seed ^ !round), memory.count());
        member.access(memory, page, false, Waited::PriorityTouch)?;
        member.timed(Waited::Unmap, |member| member.rig.unmap_anonymous(map));
        world::sleep_until_ns(world::now_ns() + PRIORITY_PAUSE);
    }
    Ok(())
}
