//! Document 004's page fault test: N threads populate anonymous memory, a word
//! a page. The population is measured: all begin at one moment, and
//! mapping and unmapping are done before and after.
//!
//! ```text
//!   map ─► meet ─► populate ─► meet ─► unmap ─┐
//!    ▲      wall and CPU time of this         │
//!    └──────────── until the time is over ◄───┘
//! ```
//! A mapping each, or, `shared`, one mapping for all, made and given up by one
//! of them; each thread has a part of it. As mmtests has it, faults/sec is the
//! pages of all threads by the wall clock, faults/cpu by their processor time.
//!
//! The document populates gigabytes for minutes; here a thread's part is
//! smaller (`Job::region`), and `seconds` are few.

use super::gang::{Member, Task};
use super::meeting::Meeting;
use super::tally::Waited;
use crate::job::{Job, PAGE};
use crate::rig::AnonymousMap;
use crate::world;
use softfault_engine::lock::Mutex;
use std::ops::Range;
use sync::Arc;

/// Of so many pages one is checked.
const CHECKED: usize = 16;
/// Words of a page that rounds write to in turn.
const WORDS: u64 = PAGE / 8;

/// The budget.
const MEMORY: u64 = 8 << 30;
/// Bytes that a thread populates.
const REGION: u64 = 2 << 20;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.region = REGION;
    // As good as none: the document has no memory cgroup.
    job.memory = MEMORY;
}

/// The state that the threads share.
struct Test {
    shared: bool,
    pages: u64,
    all_pages: u64,
    meeting: Meeting,
    /// The one mapping of `shared`: where it is.
    start: Mutex<usize>,
}

/// The threads.
pub fn tasks(job: &Job) -> Vec<Task> {
    let pages = job.region / PAGE;
    let test = Arc::new(Test {
        shared: job.shared,
        pages,
        all_pages: pages * job.threads as u64,
        meeting: Meeting::new(job, job.threads),
        start: Mutex::new(0),
    });
    let task = |number| {
        let test = test.clone();
        Task {
            name: format!("pft {number}"),
            nice: 0,
            works: true,
            body: Box::new(move |member| test.rounds(member, number)),
        }
    };
    (0..job.threads).map(task).collect()
}

impl Test {
    fn rounds(&self, member: &mut Member, number: usize) -> Result<(), String> {
        let seat = self.meeting.seat();
        let mut own: Option<AnonymousMap> = None;
        for round in 0.. {
            let maps = !self.shared || number == 0;
            if maps {
                let bytes = PAGE
                    * if self.shared {
                        self.all_pages
                    } else {
                        self.pages
                    };
                let map = member.timed(Waited::Map, |member| member.rig.map_anonymous(bytes))?;
                if self.shared {
                    *self.start.lock() = map.start();
                }
                own = Some(map);
            }
            // One round at least, however short the run.
            let over = || round > 0 && member.stopped();
            let Some(met) = seat.meet(0, over) else {
                return Ok(());
            };
            if met.over {
                own.into_iter()
                    .for_each(|map| member.rig.unmap_anonymous(map));
                return Ok(());
            }
            let first = self.pages * number as u64;
            let (start, pages) = match (self.shared, &own) {
                (false, Some(map)) => (map.start(), 0..self.pages),
                _ => (*self.start.lock(), first..first + self.pages),
            };
            let cpu_ns = world::cpu_ns();
            populate(member, start, round, pages.clone())?;
            member.tally.populated.cpu_ns += world::cpu_ns() - cpu_ns;
            let ended_ns = world::now_ns();
            check(member, start, round, pages)?;
            let Some(met_again) = seat.meet(ended_ns, || false) else {
                return Ok(());
            };
            if number == 0 {
                member.tally.populated.ns += met_again.latest_ns - met.at_ns;
            }
            if let Some(map) = own.take() {
                member.timed(Waited::Unmap, |member| member.rig.unmap_anonymous(map));
            }
            member.tally.rounds += 1;
        }
        Ok(())
    }
}

/// Where a round writes in a page.
fn place(start: usize, page: u64, round: u64) -> usize {
    start + (page * PAGE + round % WORDS * 8) as usize
}

fn populate(
    member: &mut Member,
    start: usize,
    round: u64,
    pages: Range<u64>,
) -> Result<(), String> {
    let rig = member.rig.clone();
    for page in pages.clone() {
        let addr = place(start, page, round);
        let written = rig.write(&mut member.view, addr, page + 1);
        written.map_err(|error| format!("cannot write page {page}: {error:?}"))?;
    }
    member.tally.populated.pages += pages.end - pages.start;
    member.tally.touches += pages.end - pages.start;
    Ok(())
}

/// The written word is there, and that of the round before is not: so a page
/// that was not made anew is found.
fn check(member: &mut Member, start: usize, round: u64, pages: Range<u64>) -> Result<(), String> {
    let rig = member.rig.clone();
    for page in pages.step_by(CHECKED) {
        let places = [(round, page + 1), (round + WORDS - 1, 0)];
        for (place_of, expected) in places {
            let word = rig.read(&mut member.view, place(start, page, place_of));
            let word = word.map_err(|error| format!("cannot read page {page}: {error:?}"))?;
            if word != expected {
                return Err(format!(
                    "wrong data in page {page} of anonymous memory: {word}, not {expected}"
                ));
            }
        }
    }
    Ok(())
}
