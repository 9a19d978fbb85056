//! Document 002's swap side: many threads come back from waiting for swap, while others need `mmap_lock` for
//! write.
//!
//! | threads | priority | do |
//! |---|---|---|
//! | N background | low (nice 10, SCHED_BATCH) | a round after the other: a run of pages in order, then as many by themselves; some are written |
//! | one | normal | maps a little, touches it, reads a page of the memory and unmaps, each millisecond |
//! | one | normal | a fork every 20 ms, whose child exits at once; of the space, where page tables are soft |
//!
//! Which pages a round touches depends on the seed and the round's number only, so that the work is the same
//! for every engine. It is done after a number of rounds, or when the time is over.

use super::super::fill::{PAGE, mix, uniform};
use super::super::job::{Memory, ROUND_PAGES};
use super::super::memory::accesses::Accesses;
use super::super::memory::pages::Pages;
use super::gang::Member;
use super::memory::Toucher;
use super::warm_start::{forks, lower_priority};
use super::{Bench, STACK, gang};
use crate::results::row::Waited;
use softfault::clock::now_ns;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Pages of the mapping that is mapped and unmapped.
const MAPPED: u64 = 4;
/// Between two of its mappings.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs so many rounds in all, or until the time is over.
pub fn run(bench: &Bench, memory: Memory, rounds: Option<u64>) -> Result<(), String> {
    let mapped = bench.map_anonymous(memory.bytes)?;
    let pages = bench.populated(&*mapped, memory.pages())?;
    let accesses = memory.accesses(bench.job.seed);
    let next = AtomicU64::new(0);
    let seconds = rounds.is_none().then_some(bench.job.seconds);
    let background = bench.job.threads;
    gang::measure(bench, STACK, seconds, |member| match member.number {
        number if number < background => touches(member, &pages, &accesses, rounds, &next),
        number if number == background => maps(bench, member, &pages),
        _ => forks(bench, member),
    })?;
    bench.swept(&pages)
}

/// In the background.
fn touches(
    member: &Member,
    pages: &Pages,
    accesses: &Accesses,
    rounds: Option<u64>,
    next: &AtomicU64,
) -> Result<(), String> {
    lower_priority().map_err(|e| format!("cannot lower a thread's priority: {e}"))?;
    while !member.stopped() {
        // Relaxed: a number and nothing else.
        let round = next.fetch_add(1, Ordering::Relaxed);
        if rounds.is_some_and(|rounds| round >= rounds) {
            break;
        }
        let first = accesses.at(0, round * ROUND_PAGES).page;
        let mut since = now_ns();
        for number in 0..ROUND_PAGES {
            let access = accesses.at(0, round * ROUND_PAGES + number);
            let page = match number < ROUND_PAGES / 2 {
                true => (first + number) % pages.count(),
                false => access.page,
            };
            match access.writes {
                true => pages.write(page)?,
                false => pages.read(page, access.word)?,
            }
            member.lap(Waited::Touch, &mut since);
            member.count(1);
        }
        member.count_round();
    }
    Ok(())
}

/// The one whose waiting a person would see.
fn maps(bench: &Bench, member: &Member, pages: &Pages) -> Result<(), String> {
    for round in 0.. {
        // One mapping at least, however short the run.
        if round > 0 && member.stopped() {
            break;
        }
        let memory = member.timed(Waited::Map, || bench.map_anonymous(MAPPED * PAGE))?;
        let toucher = Toucher::new(&*memory, round);
        for page in 0..MAPPED {
            member.timed(Waited::PriorityTouch, || toucher.touch(page))?;
            toucher.check(page)?;
        }
        let word = mix(bench.job.seed ^ !round);
        let page = uniform(word, pages.count());
        member.timed(Waited::PriorityTouch, || pages.read(page, word))?;
        member.timed(Waited::Unmap, || drop(memory));
        member.count_map();
        sleep(PAUSE);
    }
    Ok(())
}
