//! The threads of a run: they begin at one moment, work until the time is over,
//! and report their counts.

use super::meeting::Meeting;
use super::tally::{Tally, Waited};
use crate::job::{Job, Progress};
use crate::outcome::Trouble;
use crate::rig::{Rig, View};
use crate::world;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ops::ControlFlow;
use sync::Arc;

/// How often the caller hears of the run, at most.
const TICKS: u64 = 200;
/// Between two times, at least: each takes a processor from the threads.
const TICK_NS: u64 = 1_000_000;

/// The work of a thread, from the moment when all are ready.
pub type Body = Box<dyn FnOnce(&mut Member) -> Result<(), String>>;

/// A thread to be.
pub struct Task {
    /// Its name, for reports of waits.
    pub name: String,
    /// Its nice value.
    pub nice: i8,
    /// Whether its processor time counts.
    pub works: bool,
    /// Its work.
    pub body: Body,
}

/// The context of a thread.
pub struct Member {
    /// The state that the threads share.
    pub rig: Arc<Rig>,
    /// The thread's way to the bytes.
    pub view: View,
    /// Its counts.
    pub tally: Tally,
    /// Whether the disk has bad pages.
    pub errors_expected: bool,
    end_ns: u64,
    stop: Arc<AtomicBool>,
}

impl Member {
    /// Whether the time is over, or another thread has failed.
    pub fn stopped(&self) -> bool {
        // Relaxed: only ends loops. No operation of the façade: a
        // run is stopped from outside of the machine.
        world::now_ns() >= self.end_ns || self.stop.load(Ordering::Relaxed)
    }

    /// Does something, and remembers how long it took if nothing of its kind
    /// took longer.
    pub fn timed<T>(&mut self, what: Waited, act: impl FnOnce(&mut Self) -> T) -> T {
        let since = world::now_ns();
        let result = act(self);
        self.tally.longest(what, world::now_ns() - since);
        result
    }

    fn work(mut self, counts: bool, body: Body) -> Result<Tally, String> {
        let cpu_ns = world::cpu_ns();
        let done = body(&mut self);
        if counts {
            self.tally.ended_ns = world::now_ns();
            let since_ns = cpu_ns.max(self.tally.cpu_before_ns);
            self.tally.cpu_ns = world::cpu_ns() - since_ns;
        }
        if done.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        done.map(|()| self.tally)
    }
}

/// The counts of all threads together.
pub struct Measured {
    /// The sum of all.
    pub tally: Tally,
    /// From the start to the end of the last thread that works.
    pub elapsed_ns: u64,
}

/// Runs the tasks; calls `before` before any of them begins.
pub fn run(
    job: &Job,
    rig: &Arc<Rig>,
    tasks: Vec<Task>,
    watch: &dyn Fn(Progress) -> ControlFlow<()>,
    before: impl FnOnce(),
) -> Result<Measured, Trouble> {
    let stop = Arc::new(AtomicBool::new(false));
    let start = Arc::new(Meeting::new(job, tasks.len() + 1));
    let duration_ns = job.duration_ns();
    let mut threads = Vec::new();
    let errors_expected = job.io_errors_per_million > 0;
    for task in tasks {
        let (rig, stop, start) = (rig.clone(), stop.clone(), start.clone());
        let run = move || {
            let seat = start.seat();
            let view = rig.view()?;
            let Some(met) = seat.meet(0, || false) else {
                return Ok(Tally::default());
            };
            let member = Member {
                rig,
                view,
                tally: Tally::default(),
                errors_expected,
                end_ns: met.at_ns + duration_ns,
                stop,
            };
            member.work(task.works, task.body)
        };
        threads.push(world::spawn_named(&task.name, task.nice, run));
    }
    let seat = start.seat();
    let mut ended = Ok(());
    let mut began_ns = 0;
    // All they do until they meet is to start.
    before();
    if let Some(met) = seat.meet(0, || false) {
        began_ns = met.at_ns;
        let tick_ns = (duration_ns / TICKS).max(TICK_NS);
        for tick in 1..=duration_ns.div_ceil(tick_ns) {
            world::sleep_until_ns(began_ns + duration_ns.min(tick_ns * tick));
            let progress = Progress {
                virtual_ns: world::now_ns() - began_ns,
                of_ns: duration_ns,
            };
            if watch(progress).is_break() {
                ended = Err(Trouble::Interrupted);
            }
            if ended.is_err() || stop.load(Ordering::Relaxed) {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
    }
    let mut tally = Tally::default();
    for thread in threads {
        match thread.join() {
            Ok(Ok(done)) => tally.add(&done),
            Ok(Err(why)) => ended = ended.and(Err(Trouble::Failed(why))),
            Err(_) => ended = ended.and(Err(Trouble::Failed("a thread panicked".to_owned()))),
        }
    }
    ended?;
    Ok(Measured {
        elapsed_ns: tally.ended_ns.saturating_sub(began_ns),
        tally,
    })
}
