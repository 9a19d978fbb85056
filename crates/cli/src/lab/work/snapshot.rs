//! The snapshot of an in-memory store: threads write pages of anonymous memory that is larger than the budget,
//! the process forks, and its child reads all of the memory as it was at that moment, while the parent's
//! threads write on.
//!
//! ```text
//!   writers   ──── touches ────┬─ at the fork ─┬──── touches in the walk ────┬──► end
//!   forker    sleeps           │ notes, forks, │ waits for the child         │ tells
//!                              │ notes again   │                             │
//!   child                      └───────────────┴─ reads and checks all ──────┘
//! ```
//! A fork is no single moment to threads that write meanwhile, on any kernel. So the forker notes each page's
//! version before it and after it, and the child checks that each page is whole, of one version, and none
//! older than the first or newer than the second.

use super::super::counters::Blame;
use super::super::engine::wait_for;
use super::super::job::Memory;
use super::super::memory::pages::Pages;
use super::super::memory::seen::Range;
use super::super::usage::peak_rss;
use super::gang::Member;
use super::{Bench, STACK, gang};
use crate::results::row::Waited;
use softfault::clock::now_ns;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The state of the forker. Writers look at it before and after each touch.
const BEFORE: u8 = 0;
const FORKING: u8 = 1;
const WALKING: u8 = 2;

/// Writes, forks after the time, and ends with the child.
pub fn run(bench: &Bench, memory: Memory) -> Result<(), String> {
    let mapped = bench.map_anonymous(memory.bytes)?;
    let pages = bench.populated(&*mapped, memory.pages())?;
    let range = Range::new(memory.pages()).map_err(|e| format!("no memory for notes: {e}"))?;
    let accesses = memory.accesses(bench.job.seed);
    let phase = AtomicU8::new(BEFORE);
    let over = AtomicBool::new(false);
    gang::measure(bench, STACK, None, |member| {
        if member.number == bench.job.threads {
            let forked = forks(bench, member, &pages, &range, &phase);
            // Relaxed: only ends loops.
            over.store(true, Ordering::Relaxed);
            return forked;
        }
        for number in 0.. {
            if member.stopped() || over.load(Ordering::Relaxed) {
                break;
            }
            let access = accesses.at(member.number, number);
            // Relaxed: tells figures apart, and nothing hangs on it.
            let before = phase.load(Ordering::Relaxed);
            let since = now_ns();
            match access.writes {
                true => pages.write(access.page)?,
                false => pages.read(access.page, access.word)?,
            }
            let waited = now_ns() - since;
            let what = match (before, phase.load(Ordering::Relaxed)) {
                (BEFORE, BEFORE) => Waited::Touch,
                (WALKING, _) => Waited::WalkTouch,
                _ => Waited::ForkTouch,
            };
            member.waited(what, waited);
            member.count(1);
        }
        Ok(())
    })?;
    bench.swept(&pages)
}

fn forks(
    bench: &Bench,
    member: &Member,
    pages: &Pages,
    range: &Range,
    phase: &AtomicU8,
) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs_f64(bench.job.seconds);
    while Instant::now() < end {
        if member.stopped() {
            return Ok(());
        }
        sleep(Duration::from_millis(10).min(end.saturating_duration_since(Instant::now())));
    }
    range.note_done(pages);
    phase.store(FORKING, Ordering::Relaxed);
    let mut since = now_ns();
    // SAFETY: the child calls nothing that a lock of another thread could keep it from: it reads the memory,
    // which is the purpose of the fork, and the C library's heap works after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        walk(bench, pages, range);
    }
    member.lap(Waited::Fork, &mut since);
    phase.store(WALKING, Ordering::Relaxed);
    if child < 0 {
        return Err(format!("cannot fork: {}", io::Error::last_os_error()));
    }
    range.note_begun(pages);
    let ended = wait_for(child);
    member.waited(Waited::Walk, now_ns() - since);
    // The child's own message says more than how it ended.
    match bench.counters.error() {
        Some((_, text)) => Err(text),
        None => ended,
    }
}

/// The child: reads and checks all of the memory, and exits.
fn walk(bench: &Bench, pages: &Pages, range: &Range) -> ! {
    // SAFETY: prctl with no pointers: a run that is given up takes the child along.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    range.wait();
    let walked = (0..pages.count()).try_for_each(|page| {
        let version = pages.verify(page, range.seen(page));
        version
            .map(drop)
            .map_err(|e| format!("the child of fork: {e}"))
    });
    if let Some(bytes) = peak_rss("self") {
        bench.counters.set_child_peak(bytes);
    }
    let code = match walked {
        Ok(()) => 0,
        Err(text) => {
            bench.counters.fail(Blame::Run, &text);
            1
        }
    };
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}
