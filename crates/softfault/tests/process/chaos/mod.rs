//! Chaos: threads make drawn calls of the matrix, those that a process survives and that can be
//! made again and again, while others read maps in every way there is, and check every byte.
//! A seed draws the same calls again.

mod acts;
mod draw;
mod journal;
mod readers;
mod report;
mod signals;
mod world;

use crate::{child, files, watch};
use draw::Draw;
use journal::Journal;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use world::World;

/// The test that is the process.
const IN_CHILD: &str = "chaos::the_process_in_chaos";
const SEED: &str = "SOFTFAULT_CHAOS_SEED";
const SECONDS: &str = "SOFTFAULT_CHAOS_SECONDS";
/// Calls to leave out, as parts of their names with commas between: to find the one that it is.
const WITHOUT: &str = "SOFTFAULT_CHAOS_WITHOUT";
/// The time that a run of the tests takes; `just chaos` says more.
const DEFAULT_SECONDS: u64 = 20;
const ACTORS: usize = 3;
const READERS: usize = 4;
/// A thread that has done nothing for so long hangs.
const HANGS: Duration = Duration::from_secs(300);

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

#[test]
fn no_call_of_a_program_makes_a_byte_wrong() {
    let seed = number(SEED).unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        let now = now
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970");
        now.as_nanos() as u64 % 1_000_000_007
    });
    let seconds = number(SECONDS).unwrap_or(DEFAULT_SECONDS);
    println!("seed {seed}, {seconds} seconds");
    let file = files::made_file("chaos", world::FILE_BYTES);
    let journal = Journal::create(&files::path(&format!("journal-{}", std::process::id())));
    let mut command = child::command(IN_CHILD, &format!("{seed}/{seconds}"));
    command.env(journal::PATH, journal.path());
    command.stdin(Stdio::from(
        file.as_fd().try_clone_to_owned().expect("a descriptor"),
    ));
    let ended = watch::run_for(&mut command, Duration::from_secs(seconds) + 3 * HANGS);
    println!("{}", ended.said);
    let last = journal.last();
    journal.remove();
    let well =
        ended.status.is_some_and(|status| status.success()) && ended.said.contains("CHECKED");
    assert!(
        well,
        "{:?}; {SEED}={seed}; the last calls:\n{last}",
        ended.status
    );
}

/// The state that all threads see.
struct Progress {
    stop: AtomicBool,
    /// Of actors, then of readers.
    steps: [AtomicU64; ACTORS + READERS],
    pages: AtomicU64,
}

#[test]
fn the_process_in_chaos() {
    let Some(name) = child::scenario() else {
        return;
    };
    let Some((seed, seconds)) = name.split_once('/') else {
        return;
    };
    let (Ok(seed), Ok(seconds)) = (seed.parse(), seconds.parse()) else {
        return;
    };
    let journal = Journal::open();
    report::install();
    signals::keep_from_credentials();
    let without = std::env::var(WITHOUT).unwrap_or_default();
    let without: Vec<_> = without.split(',').filter(|part| !part.is_empty()).collect();
    let world = World::new();
    let progress = Progress {
        stop: AtomicBool::new(false),
        steps: [const { AtomicU64::new(0) }; ACTORS + READERS],
        pages: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let (world, progress, journal, without) = (&world, &progress, &journal, &without);
        for actor in 0..ACTORS {
            scope.spawn(move || {
                let mut draw = Draw::new(seed, actor as u64);
                let step = &progress.steps[actor];
                while !progress.stop.load(Relaxed) {
                    let act = draw.below(acts::ACTS.len());
                    if without
                        .iter()
                        .any(|part| acts::ACTS[act].name.contains(part))
                    {
                        continue;
                    }
                    journal.note(actor, step.load(Relaxed), act);
                    (acts::ACTS[act].run)(world, &mut draw);
                    acts::COUNTS[act].fetch_add(1, Relaxed);
                    step.fetch_add(1, Relaxed);
                }
            });
        }
        for reader in 0..READERS {
            scope.spawn(move || {
                let mut draw = Draw::new(seed, 1000 + reader as u64);
                let step = &progress.steps[ACTORS + reader];
                while !progress.stop.load(Relaxed) {
                    let pages = readers::read(world, &mut draw);
                    progress.pages.fetch_add(pages, Relaxed);
                    step.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(move || watched(progress, journal, seconds));
    });
    world.check_all();
    let stats = world.engine.stats();
    assert!(stats.evicted > 0, "nothing was evicted");
    for (act, count) in acts::ACTS.iter().zip(&acts::COUNTS) {
        println!("{:>8} {}", count.load(Relaxed), act.name);
    }
    let calls: u64 = acts::COUNTS.iter().map(|count| count.load(Relaxed)).sum();
    println!(
        "CHECKED {} pages, {calls} calls, {} evictions, {} pages to swap, {} faults",
        progress.pages.load(Relaxed),
        stats.evicted,
        stats.swap.map_or(0, |swap| swap.pages_out),
        stats.faults
    );
}

/// Stops all of it after some seconds; ends the process if a thread makes no step.
fn watched(progress: &Progress, journal: &Journal, seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seen = [(u64::MAX, Instant::now()); ACTORS + READERS];
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        for (thread, (step, since)) in seen.iter_mut().enumerate() {
            let now = progress.steps[thread].load(Relaxed);
            if now != *step {
                (*step, *since) = (now, Instant::now());
            }
            if since.elapsed() > HANGS {
                eprintln!("thread {thread} hangs at step {now}\n{}", journal.last());
                eprintln!("{}", watch::threads(std::process::id()));
                std::process::exit(3);
            }
        }
    }
    progress.stop.store(true, Relaxed);
}
