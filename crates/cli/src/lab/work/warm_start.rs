//! Document 002's start of an application, as far as it is about memory: many files of mixed size, more
//! than memory holds, are mapped, read in part and unmapped.
//!
//! | threads | priority | do |
//! |---|---|---|
//! | N background | low (nice 10, SCHED_BATCH) | a file after the other: the first half in order, then a quarter as many pages as it has at random |
//! | one | normal | a small file each millisecond, all of it |
//! | one | normal | a fork every 20 ms, whose child exits at once; of the space, where page tables are soft |
//!
//! Which file a round takes, and which pages, depends on the seed and the round's number only, not on the thread that
//! takes it: the work is the same for every engine. It is done after a number of rounds, or when the time
//! is over.

use super::super::fill::{PAGE, mix, uniform};
use super::super::reader::Buffer;
use super::gang::Member;
use super::{Bench, gang};
use crate::results::row::Waited;
use softfault::clock::now_ns;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Added to the nice value of the threads in the background.
const NICER: i32 = 10;
/// The largest file that the thread of normal priority takes.
const SMALL_BYTES: u64 = 64 << 10;
/// Between two of its files.
const PRIORITY_PAUSE: Duration = Duration::from_millis(1);
/// Between two forks.
const FORK_PAUSE: Duration = Duration::from_millis(20);

/// Runs so many rounds in all, or until the time is over.
pub fn run(bench: &Bench, rounds: Option<u64>) -> Result<(), String> {
    let next = AtomicU64::new(0);
    let seconds = rounds.is_none().then_some(bench.job.seconds);
    let background = bench.job.threads;
    gang::measure(bench, 256 << 10, seconds, |member| match member.number {
        number if number < background => starts(bench, member, rounds, &next),
        number if number == background => draws(bench, member),
        _ => forks(bench, member),
    })
}

/// In the background.
fn starts(
    bench: &Bench,
    member: &Member,
    rounds: Option<u64>,
    next: &AtomicU64,
) -> Result<(), String> {
    lower_priority().map_err(|e| format!("cannot lower a thread's priority: {e}"))?;
    let mut buffer = Buffer::default();
    for taken in 0.. {
        // One file at least, however short the run.
        if taken > 0 && member.stopped() {
            break;
        }
        // Relaxed: a number and nothing else.
        let round = next.fetch_add(1, Ordering::Relaxed);
        if rounds.is_some_and(|rounds| round >= rounds) {
            break;
        }
        let word = mix(bench.job.seed ^ mix(round));
        let files = bench.job.files.len() as u64;
        let mut source = bench.open(uniform(word, files) as usize)?;
        let pages = source.pages();
        member.timed(Waited::Map, || source.map(bench.engine))?;
        let mut reader = source.reader(&mut buffer);
        let in_order = 0..pages.div_ceil(2);
        let random = (0..pages / 4).map(|touch| uniform(mix(word ^ touch), pages));
        let mut since = now_ns();
        for page in in_order.chain(random) {
            reader.touch(page)?;
            member.lap(Waited::Touch, &mut since);
            member.count(1);
        }
        member.timed(Waited::Unmap, || source.unmap());
        member.count_map();
        member.count_round();
    }
    Ok(())
}

/// The one whose waiting a person would see.
fn draws(bench: &Bench, member: &Member) -> Result<(), String> {
    let files = &bench.job.files;
    let smallest = files.iter().map(|file| file.bytes).min().unwrap_or(PAGE);
    let small = |&number: &usize| files[number].bytes <= SMALL_BYTES.max(smallest);
    let small: Vec<usize> = (0..files.len()).filter(small).collect();
    let mut buffer = Buffer::default();
    for round in 0.. {
        // One file at least, however short the run.
        if round > 0 && member.stopped() {
            break;
        }
        let word = mix(bench.job.seed ^ !round);
        let number = small[uniform(word, small.len() as u64) as usize];
        let mut source = bench.open(number)?;
        member.timed(Waited::Map, || source.map(bench.engine))?;
        let mut reader = source.reader(&mut buffer);
        let mut since = now_ns();
        for page in 0..source.pages() {
            reader.touch(page)?;
            member.lap(Waited::PriorityTouch, &mut since);
        }
        member.timed(Waited::Unmap, || source.unmap());
        member.count_map();
        sleep(PRIORITY_PAUSE);
    }
    Ok(())
}

pub fn forks(bench: &Bench, member: &Member) -> Result<(), String> {
    let engine = bench.engine.expect("pread has no maps to fork");
    loop {
        let forked = member.timed(Waited::Fork, || engine.fork());
        forked.map_err(|e| format!("cannot fork: {e}"))?.end()?;
        if member.stopped() {
            return Ok(());
        }
        sleep(FORK_PAUSE);
    }
}

/// Of this thread: on Linux both calls are about one thread.
pub fn lower_priority() -> io::Result<()> {
    /// The kernel's `struct sched_param`.
    const NO_PRIORITY: libc::c_int = 0;
    // SAFETY: numbers, and a live structure. By number, because musl's function only refuses.
    let rc = unsafe {
        let (call, batch) = (libc::SYS_sched_setscheduler, libc::SCHED_BATCH);
        match libc::syscall(call, 0, batch, &NO_PRIORITY) as libc::c_int {
            0 => {
                let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
                libc::setpriority(libc::PRIO_PROCESS, 0, (nice + NICER).min(19))
            }
            failed => failed,
        }
    };
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
