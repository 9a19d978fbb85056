//! Document 004's page fault test: N threads populate anonymous memory, a byte a page. Only the
//! population is measured: all begin together, and mapping and unmapping are done before and after.
//!
//! ```text
//!   map ─► meet ─► populate ─► meet ─► unmap ─┐
//!    ▲      wall and CPU time of this         │
//!    └──────────── until the time is over ◄───┘
//! ```
//! `own`: a mapping each. `shared`: one mapping for all, made and given up by one of them; each thread has
//! a part of it.

use super::super::engine::Anonymous;
use super::super::fill::PAGE;
use super::gang::Member;
use super::meeting::Meeting;
use super::memory::Toucher;
use super::{Bench, gang};
use crate::results::row::Waited;
use softfault::clock::{now_ns, thread_cpu_ns};
use std::ops::Range;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of so many pages one is checked: a look costs as much as a tenth of a fault where faults are cheap.
const CHECKED: usize = 16;

/// The state that the threads share.
struct Test {
    meeting: Meeting,
    /// The one mapping of `shared`; between two meetings only read.
    memory: RwLock<Option<Box<dyn Anonymous>>>,
    /// When the population began; written by the last to come to a meeting, which publishes it.
    began: AtomicU64,
    /// Whether there is another round; as `began`.
    over: AtomicBool,
}

/// Populates `bytes` bytes a thread until the time is over.
pub fn run(bench: &Bench, shared: bool, bytes: u64) -> Result<(), String> {
    let test = Test {
        meeting: Meeting::new(bench.job.threads),
        memory: RwLock::new(None),
        began: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    gang::measure(bench, 256 << 10, Some(bench.job.seconds), |member| {
        test.rounds(bench, member, shared, bytes)
    })
}

impl Test {
    fn rounds(
        &self,
        bench: &Bench,
        member: &Member,
        shared: bool,
        bytes: u64,
    ) -> Result<(), String> {
        let seat = self.meeting.seat();
        let pages = bytes / PAGE;
        let first = match shared {
            true => member.number as u64 * pages,
            false => 0,
        };
        for round in 0.. {
            let maps = !shared || member.number == 0;
            let all_bytes = match shared {
                true => bytes * bench.job.threads as u64,
                false => bytes,
            };
            let mut own = None;
            if maps {
                let map = || bench.map_anonymous(all_bytes);
                own = Some(member.timed(Waited::Map, map)?);
                if shared {
                    *self.memory.write().expect("no thread panics") = own.take();
                }
            }
            let start = || {
                // One round at least, however short the run.
                let over = round > 0 && member.stopped();
                self.over.store(over, Ordering::Relaxed);
                self.began.store(now_ns(), Ordering::Relaxed);
            };
            if !seat.meet(start) || self.over.load(Ordering::Relaxed) {
                return Ok(());
            }
            {
                let all = self.memory.read().expect("no thread panics");
                let memory = own.as_deref().or(all.as_deref());
                let memory = memory.expect("mapped before the meeting");
                populate(member, memory, round, first..first + pages)?;
            }
            let end = || member.count_populate(now_ns() - self.began.load(Ordering::Relaxed));
            if !seat.meet(end) {
                return Ok(());
            }
            if maps {
                let all = match shared {
                    true => self.memory.write().expect("no thread panics").take(),
                    false => own,
                };
                member.timed(Waited::Unmap, || drop(all));
                member.count_map();
            }
        }
        Ok(())
    }
}

fn populate(
    member: &Member,
    memory: &dyn Anonymous,
    round: u64,
    pages: Range<u64>,
) -> Result<(), String> {
    let count = pages.end - pages.start;
    let toucher = Toucher::new(memory, round);
    let before = thread_cpu_ns();
    for page in pages.clone() {
        toucher.touch(page)?;
    }
    member.count_populate_cpu(thread_cpu_ns() - before);
    member.count(count);
    pages
        .step_by(CHECKED)
        .try_for_each(|page| toucher.check(page))
}
