//! Document 002's start of an application, as far as it is about memory: many
//! files of mixed size, more than memory holds, are mapped, read in part and
//! unmapped.
//!
//! | threads | priority | do |
//! |---|---|---|
//! | N background | low (nice 10) | a file after the other: the first half in order, then a quarter as many pages as it has at random |
//! | one | normal | a small file each millisecond, all of it |
//! | one | normal | a fork of the space every 20 ms, given up at once |
//!
//! Which file a round takes, and which pages, depends on the seed and the
//! round's number only. The document's is on a phone of 8 cores, whose files it
//! does not name; sizes here are the lab's: as many files as make four budgets,
//! evenly spread over the orders of magnitude from 4 KiB to 8 MiB.

use super::gang::{Member, Task};
use super::tally::Waited;
use crate::job::{Job, PAGE};
use crate::random::{mix, uniform};
use crate::world;
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The nice value of the threads in the background.
pub const NICER: i8 = 10;
/// The largest file.
const LARGEST: u64 = 8 << 20;
/// The largest file that the thread of normal priority takes.
const SMALL: u64 = 64 << 10;
/// Between two of its files, in virtual nanoseconds.
pub const PRIORITY_PAUSE: u64 = 1_000_000;
/// Between two forks.
const FORK_PAUSE: u64 = 20_000_000;
/// The budget.
const MEMORY: u64 = 1 << 30;
/// Files: 4 GiB.
const FILES: usize = 3906;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.memory = MEMORY;
    job.files = FILES;
    job.seconds = 1.0;
}

/// The sizes of the files, in an order that the seed decides.
pub fn files(job: &Job) -> Vec<u64> {
    mixed_sizes(job.files.max(1) as u64, LARGEST, job.seed)
}

/// So many sizes, whole pages: evenly spread over the orders of magnitude between a page and the largest, in an order that
/// `seed` determines.
pub fn mixed_sizes(count: u64, largest: u64, seed: u64) -> Vec<u64> {
    let orders = (largest as f64 / PAGE as f64).ln();
    let size = |number: u64| {
        let share = (number as f64 + 0.5) / count as f64;
        ((PAGE as f64 * (orders * share).exp()) as u64).next_multiple_of(PAGE)
    };
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.sort_by_key(|&number| mix(seed ^ mix(number)));
    numbers.into_iter().map(size).collect()
}

/// The threads, two of them beside the workers.
pub fn tasks(job: &Job) -> Vec<Task> {
    let next = Arc::new(AtomicU64::new(0));
    let seed = job.seed;
    let background = |number| {
        let next = next.clone();
        Task {
            name: format!("background {number}"),
            nice: NICER,
            works: true,
            body: Box::new(move |member: &mut Member| starts(member, seed, &next)),
        }
    };
    let mut tasks: Vec<Task> = (0..job.threads).map(background).collect();
    tasks.push(Task {
        name: "priority".to_owned(),
        nice: 0,
        works: false,
        body: Box::new(move |member| draws(member, seed)),
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
fn starts(member: &mut Member, seed: u64, next: &AtomicU64) -> Result<(), String> {
    while !member.stopped() {
        // Relaxed: a number and nothing else.
        let word = mix(seed ^ mix(next.fetch_add(1, Relaxed)));
        let number = uniform(word, member.rig.files.count() as u64) as usize;
        let map = member.timed(Waited::Map, |member| member.rig.map_file(number))?;
        let pages = map.pages();
        let in_order = 0..pages.div_ceil(2);
        let random = (0..pages / 4).map(|touch| uniform(mix(word ^ touch), pages));
        let mut whole = true;
        for page in in_order.chain(random) {
            if member.stopped() {
                whole = false;
                break;
            }
            member.touch(&map, page, Waited::Touch)?;
        }
        member.timed(Waited::Unmap, |member| member.rig.unmap_file(map));
        member.tally.rounds += u64::from(whole);
    }
    Ok(())
}

/// The one whose waiting a person would see.
fn draws(member: &mut Member, seed: u64) -> Result<(), String> {
    let files = &member.rig.files;
    let all = || 0..files.count();
    let smallest = all().map(|number| files.bytes(number)).min();
    let most = SMALL.max(smallest.unwrap_or(PAGE));
    let small: Vec<usize> = all()
        .filter(|&number| files.bytes(number) <= most)
        .collect();
    // One file at least, however short the run.
    for round in 0.. {
        if round > 0 && member.stopped() {
            break;
        }
        let word = mix(seed ^ !round);
        let number = small[uniform(word, small.len() as u64) as usize];
        let map = member.timed(Waited::Map, |member| member.rig.map_file(number))?;
        for page in 0..map.pages() {
            member.touch(&map, page, Waited::PriorityTouch)?;
        }
        member.timed(Waited::Unmap, |member| member.rig.unmap_file(map));
        world::sleep_until_ns(world::now_ns() + PRIORITY_PAUSE);
    }
    Ok(())
}

/// A fork of the space, given up at once, and again.
pub fn forks(member: &mut Member) -> Result<(), String> {
    loop {
        member.timed(Waited::Fork, |member| member.rig.fork())?;
        world::sleep_until_ns(world::now_ns() + FORK_PAUSE);
        if member.stopped() {
            return Ok(());
        }
    }
}
