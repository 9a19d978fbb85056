//! Document 001's program: processes that map one huge file, fault in all of its pages, and unmap it, in a loop. Over
//! soft page tables they are spaces of one process, with a thread each.
//!
//! | start | the file is | of the time counts |
//! |---|---|---|
//! | empty | empty when all begin; from the first round on its pages are there | all |
//! | emptied | empty when each round begins, for which all meet | from there until the last has unmapped |
//! | populated | complete | all |
//! | scan | complete, and every byte of it is read | all |
//!
//! A touch writes a word of the process's own in a huge page, and looks whether it still holds the word that this process wrote there
//! last. Those that took long are asked whether the thread slept meanwhile: that is a wait. Soft page tables count the
//! waits for their locks themselves.

use super::super::engine::{HugeFile, HugeSpace, huge_soft};
use super::super::huge_pool::HUGE;
use super::super::job::Start;
use super::gang::{self, Member};
use super::meeting::{Meeting, Seat};
use super::peer::Peer;
use super::{Bench, STACK, processes};
use crate::results::on::On;
use crate::results::row::Waited;
use softfault::clock::{now_ns, thread_cpu_ns};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A shorter touch has not slept.
const MAY_HAVE_SLEPT_NS: u64 = 10_000;
/// Processes, or threads, that have a word of their own: more than there may be.
const OWN_WORDS: u64 = HUGE / 8;
const _: () = assert!(OWN_WORDS >= crate::lab::plan::THREADS_MAX as u64);
/// Pages as other workloads count them, of a huge one.
const SMALL: u64 = HUGE / 4096;

/// Maps, faults and unmaps until the time is over.
pub fn run(bench: &Bench, bytes: u64, start: Start) -> Result<(), String> {
    let pages = bytes / HUGE;
    if let On::Soft(policies) = bench.job.on {
        let file = huge_soft::soft(bytes, bench.job.threads, policies)?;
        populate(&file, pages, start)?;
        let before = file.pool().stats();
        threads(bench, |peer| work(peer, &file, pages, start))?;
        let after = file.pool().stats();
        let slots = bench.counters.slots();
        // The pool has counted each wait: those that its threads noticed are the same ones.
        for huge in slots.iter().map(|slot| &slot.huge) {
            huge.forget_waits();
        }
        let huge = &slots[0].huge;
        let wait_ns = after.wait_ns - before.wait_ns;
        for (counter, count) in [
            (&huge.served, after.faults - before.faults),
            (&huge.waits, after.waits - before.waits),
            (&huge.wait_ns, wait_ns),
            // The pool's longest may be one of populating, but none since is longer than all since.
            (&huge.longest_wait_ns, after.longest_ns.min(wait_ns)),
        ] {
            counter.store(count, Ordering::Relaxed);
        }
        return Ok(());
    }
    let engine = bench.engine.expect("the plan refuses pread here");
    let file = engine.huge(bytes);
    let file = file.map_err(|e| format!("cannot make huge memory: {e}"))?;
    populate(&*file, pages, start)?;
    processes::run(bench, |peer| {
        let before = rusage(libc::RUSAGE_SELF);
        let done = work(peer, &*file, pages, start);
        let after = rusage(libc::RUSAGE_SELF);
        let huge = &peer.member().slot().huge;
        let faults = (after.ru_minflt - before.ru_minflt) as u64;
        huge.minor_faults.store(faults, Ordering::Relaxed);
        done
    })
}

fn populate(file: &dyn HugeFile, pages: u64, start: Start) -> Result<(), String> {
    if matches!(start, Start::Empty | Start::Emptied) {
        return Ok(());
    }
    let mut space = file.space()?;
    space.map()?;
    (0..pages).try_for_each(|page| space.fill(page, filled_with(page)))?;
    space.unmap();
    Ok(())
}

/// A thread of a gang, as a peer.
struct Thread<'a> {
    member: &'a Member<'a>,
    seat: Seat<'a>,
    /// The decision of the last to come; written while all others wait.
    on: &'a AtomicBool,
    began: &'a AtomicU64,
}

impl Peer for Thread<'_> {
    fn member(&self) -> &Member<'_> {
        self.member
    }

    fn meet(&self, last: &mut dyn FnMut() -> Result<bool, String>) -> Result<bool, String> {
        let mut failed = None;
        let complete = self.seat.meet(|| {
            let on = last().unwrap_or_else(|text| {
                failed = Some(text);
                false
            });
            self.on.store(on, Ordering::Relaxed);
        });
        match failed {
            Some(text) => Err(text),
            None => Ok(complete && self.on.load(Ordering::Relaxed)),
        }
    }

    fn began(&self) -> &AtomicU64 {
        self.began
    }
}

fn threads(
    bench: &Bench,
    work: impl Fn(&dyn Peer) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let meeting = Meeting::new(bench.job.threads);
    let on = AtomicBool::new(true);
    let began = AtomicU64::new(0);
    gang::measure(bench, STACK, Some(bench.job.seconds), |member| {
        work(&Thread {
            member,
            seat: meeting.seat(),
            on: &on,
            began: &began,
        })
    })
}

fn work(peer: &dyn Peer, file: &dyn HugeFile, pages: u64, start: Start) -> Result<(), String> {
    let member = peer.member();
    let began_cpu = thread_cpu_ns();
    let mut space = file.space()?;
    for round in 1.. {
        if start == Start::Emptied {
            let on = peer.meet(&mut || {
                file.empty()?;
                peer.began().store(now_ns(), Ordering::Relaxed);
                Ok(round == 1 || !member.stopped())
            })?;
            if !on {
                break;
            }
        } else if round > 1 && member.stopped() {
            break;
        }
        member.timed(Waited::Map, || space.map())?;
        match start {
            Start::Scan => scan(member, &mut *space, pages)?,
            _ => fault(member, &mut *space, pages, round, start)?,
        }
        let served = member.timed(Waited::Unmap, || space.unmap());
        member
            .slot()
            .huge
            .served
            .fetch_add(served, Ordering::Relaxed);
        member.count_map();
        if start == Start::Emptied {
            let mut last = false;
            let on = peer.meet(&mut || {
                last = true;
                Ok(true)
            })?;
            if last {
                member.count_populate(now_ns() - peer.began().load(Ordering::Relaxed));
            }
            if !on {
                break;
            }
        }
    }
    member.count_populate_cpu(thread_cpu_ns() - began_cpu);
    Ok(())
}

/// Touches every page.
fn fault(
    member: &Member,
    space: &mut dyn HugeSpace,
    pages: u64,
    round: u64,
    start: Start,
) -> Result<(), String> {
    let own = 8 * (member.number as u64 % OWN_WORDS);
    let mut sleeps = Sleeps::begin();
    for page in 0..pages {
        let since = now_ns();
        let word = space.swap(page * HUGE + own, round)?;
        let took = now_ns() - since;
        member.waited(Waited::Touch, took);
        if took >= MAY_HAVE_SLEPT_NS && sleeps.any() {
            let huge = &member.slot().huge;
            huge.waits.fetch_add(1, Ordering::Relaxed);
            huge.wait_ns.fetch_add(took, Ordering::Relaxed);
            huge.longest_wait_ns.fetch_max(took, Ordering::Relaxed);
        }
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
fn scan(member: &Member, space: &mut dyn HugeSpace, pages: u64) -> Result<(), String> {
    for page in 0..pages {
        if space.sum(page)? != filled_with(page).wrapping_mul(HUGE / 8) {
            return Err(format!("page {page} has not the bytes that were written"));
        }
        member.count(SMALL);
    }
    Ok(())
}

/// The word in each place of a populated page.
fn filled_with(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
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

#[cfg(test)]
mod tests {
    use super::super::super::counters::Counters;
    use super::*;
    use softfault::policy::Policies;
    use std::cell::Cell;

    /// A peer that is not the last to come to the first meeting, but to all others; the time is over at the third.
    struct Late<'a> {
        member: Member<'a>,
        began: AtomicU64,
        meetings: Cell<u32>,
    }

    impl Peer for Late<'_> {
        fn member(&self) -> &Member<'_> {
            &self.member
        }

        fn meet(&self, last: &mut dyn FnMut() -> Result<bool, String>) -> Result<bool, String> {
            self.meetings.set(self.meetings.get() + 1);
            match self.meetings.get() {
                1 => {
                    self.began.store(1, Ordering::Relaxed);
                    Ok(true)
                }
                _ => last(),
            }
        }

        fn began(&self) -> &AtomicU64 {
            &self.began
        }
    }

    #[test]
    fn a_round_begins_when_the_last_to_come_says_so() {
        let counters = Counters::create(1).unwrap();
        let stop = AtomicBool::new(true);
        let peer = Late {
            member: Member::new(0, &counters.slots()[0], &stop),
            began: AtomicU64::new(0),
            meetings: Cell::new(0),
        };
        let file = huge_soft::soft(HUGE, 1, Policies::default()).unwrap();
        let before = now_ns();
        work(&peer, &file, 1, Start::Emptied).unwrap();
        let counted = peer.member.slot().populate_ns.load(Ordering::Relaxed);
        assert!(counted >= before - 1, "{counted} since {before}");
    }
}
