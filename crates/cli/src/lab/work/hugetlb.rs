//! Document 001's program: processes that map one huge file, fault in all of its pages, and unmap it, in a loop.
//!
//! | start | the file is | of the time counts |
//! |---|---|---|
//! | empty | empty when all begin; from the first round on its pages are there | all |
//! | emptied | empty when each round begins, for which all meet | from there until the last has unmapped |
//! | populated | complete | all |
//! | scan | complete, and every byte of it is read | all |
//!
//! A touch writes a word of the process's own in a huge page, and looks whether it holds what this process wrote there
//! last. Those that took long are asked whether the process slept meanwhile: that is a wait.

use super::super::counters::now_ns;
use super::super::engine::{HugeFile, HugeMapping};
use super::super::huge_pool::HUGE;
use super::super::job::Start;
use super::super::waits::Waited;
use super::Bench;
use super::gang::Member;
use super::processes::{self, Peer};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What took less has not slept.
const MAY_HAVE_SLEPT_NS: u64 = 10_000;
/// Words of a page that processes have for themselves.
const OWN_WORDS: usize = 1 << 12;
/// Pages as other workloads count them, of a huge one.
const SMALL: u64 = HUGE / 4096;

/// Maps, faults and unmaps until the time is over.
pub fn run(bench: &Bench, bytes: u64, start: Start) -> Result<(), String> {
    let engine = bench.engine.expect("the plan refuses pread here");
    let file = engine.huge(bytes);
    let file = file.map_err(|e| format!("cannot make huge memory: {e}"))?;
    if matches!(start, Start::Populated | Start::Scan) {
        let map = mapped(&*file)?;
        let words = words(&*map);
        for page in 0..bytes / HUGE {
            fill(words, page);
        }
    }
    processes::run(bench, |peer| {
        let before = Usage::now();
        let done = work(peer, &*file, bytes / HUGE, start);
        Usage::now().count(&before, &peer.member);
        done
    })
}

fn work(peer: &Peer, file: &dyn HugeFile, pages: u64, start: Start) -> Result<(), String> {
    let member = &peer.member;
    let began = AtomicU64::new(0);
    for round in 1.. {
        if start == Start::Emptied {
            let on = peer.meet(|| {
                file.empty().map_err(|e| format!("cannot empty: {e}"))?;
                Ok(round == 1 || !member.stopped())
            })?;
            if !on {
                return Ok(());
            }
            began.store(now_ns(), Ordering::Relaxed);
        } else if round > 1 && member.stopped() {
            return Ok(());
        }
        let map = member.timed(Waited::Map, || mapped(file))?;
        match start {
            Start::Scan => scan(member, words(&*map), pages)?,
            _ => fault(member, words(&*map), pages, round, start)?,
        }
        let served = map.served();
        member
            .slot()
            .huge
            .served
            .fetch_add(served, Ordering::Relaxed);
        member.timed(Waited::Unmap, || drop(map));
        member.count_map();
        if start == Start::Emptied {
            let mut ended = 0;
            let on = peer.meet(|| {
                ended = now_ns();
                Ok(true)
            })?;
            if ended > 0 {
                member.count_populate(ended - began.load(Ordering::Relaxed));
            }
            if !on {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn mapped(file: &dyn HugeFile) -> Result<Box<dyn HugeMapping>, String> {
    file.map()
        .map_err(|e| format!("cannot map huge memory: {e}"))
}

/// A map's words.
fn words(map: &dyn HugeMapping) -> NonNull<u64> {
    map.start().cast()
}

/// Touches every page.
fn fault(
    member: &Member,
    words: NonNull<u64>,
    pages: u64,
    round: u64,
    start: Start,
) -> Result<(), String> {
    let own = member.number % OWN_WORDS;
    let mut sleeps = Sleeps::begin();
    let mut since = now_ns();
    for page in 0..pages {
        // SAFETY: within the map, which is as long as the file; other processes write to other words.
        let word = unsafe {
            let word = words.add((page * HUGE / 8) as usize + own);
            let before = word.read_volatile();
            word.write_volatile(round);
            before
        };
        let now = now_ns();
        let took = now - since;
        member.waited(Waited::Touch, took);
        if took >= MAY_HAVE_SLEPT_NS && sleeps.any() {
            let huge = &member.slot().huge;
            huge.waits.fetch_add(1, Ordering::Relaxed);
            huge.wait_ns.fetch_add(took, Ordering::Relaxed);
            huge.longest_wait_ns.fetch_max(took, Ordering::Relaxed);
        }
        since = now_ns();
        let wanted = match (start, round) {
            (Start::Emptied, _) | (Start::Empty, 1) => 0,
            (_, 1) => filled_with(page),
            (_, round) => round - 1,
        };
        if word != wanted {
            return Err(format!(
                "page {page} has {word} where {wanted} was written last"
            ));
        }
    }
    member.count(pages);
    Ok(())
}

/// Reads every byte.
fn scan(member: &Member, words: NonNull<u64>, pages: u64) -> Result<(), String> {
    for page in 0..pages {
        // SAFETY: within the map, of which nobody changes a byte.
        let bytes = unsafe {
            let start = words.add((page * HUGE / 8) as usize);
            std::slice::from_raw_parts(start.as_ptr(), (HUGE / 8) as usize)
        };
        let sum = bytes.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        if sum != filled_with(page).wrapping_mul(HUGE / 8) {
            return Err(format!("page {page} has not the bytes that were written"));
        }
        member.count(SMALL);
    }
    Ok(())
}

/// What each word of a page holds that was populated.
fn filled_with(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn fill(words: NonNull<u64>, page: u64) {
    // SAFETY: within the map, which nobody else looks at yet.
    let bytes = unsafe {
        let start = words.add((page * HUGE / 8) as usize);
        std::slice::from_raw_parts_mut(start.as_ptr(), (HUGE / 8) as usize)
    };
    bytes.fill(filled_with(page));
}

/// What this process has used.
struct Usage(libc::rusage);

impl Usage {
    fn now() -> Self {
        Self(rusage(libc::RUSAGE_SELF))
    }

    /// Counts what was used since.
    fn count(&self, before: &Self, member: &Member) {
        let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let cpu = |usage: &libc::rusage| us(usage.ru_utime) + us(usage.ru_stime);
        member.count_populate_cpu(1000 * (cpu(&self.0) - cpu(&before.0)));
        let faults = (self.0.ru_minflt - before.0.ru_minflt) as u64;
        let huge = &member.slot().huge;
        huge.minor_faults.store(faults, Ordering::Relaxed);
    }
}

/// Times that this thread gave up its processor because it had to wait.
struct Sleeps(i64);

impl Sleeps {
    fn begin() -> Self {
        Self(rusage(libc::RUSAGE_THREAD).ru_nvcsw)
    }

    /// True if there was one since the last look.
    fn any(&mut self) -> bool {
        let before = std::mem::replace(&mut self.0, rusage(libc::RUSAGE_THREAD).ru_nvcsw);
        self.0 > before
    }
}

fn rusage(who: libc::c_int) -> libc::rusage {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is live.
    unsafe { libc::getrusage(who, &mut usage) };
    usage
}
