//! Runs one body on N workers, and on the bystanders that the workload has, and measures from the moment
//! all are ready until the last worker has ended. Bystanders are stopped then.

use super::super::counters::Slot;
use super::super::stats::EngineStats;
use super::super::usage::Usage;
use super::Bench;
use crate::results::row::{Waited, fine_range_of, range_of};
use softfault::clock::now_ns;
use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the clock, and two publications of the engine's counters.
const TICK: Duration = Duration::from_millis(100);

/// The context of a body.
pub struct Member<'a> {
    /// Which thread it is; bystanders have the last numbers.
    pub number: usize,
    slot: &'a Slot,
    stop: &'a AtomicBool,
}

impl<'a> Member<'a> {
    /// A worker outside of a gang.
    pub(super) fn new(number: usize, slot: &'a Slot, stop: &'a AtomicBool) -> Self {
        Self { number, slot, stop }
    }

    /// Its counters.
    pub fn slot(&self) -> &Slot {
        self.slot
    }

    /// Whether the time is over or another thread has failed.
    pub fn stopped(&self) -> bool {
        // Relaxed: only ends loops; joining the threads shows their writes.
        self.stop.load(Ordering::Relaxed)
    }

    /// Counts `accesses` more touched pages.
    pub fn count(&self, accesses: u64) {
        add(&self.slot.accesses, accesses);
    }

    /// Counts one more round.
    pub fn count_round(&self) {
        add(&self.slot.rounds, 1);
    }

    /// Counts one more pair of mapping and unmapping.
    pub fn count_map(&self) {
        add(&self.slot.maps, 1);
    }

    /// Counts the user and system time of a population by this thread.
    pub fn count_populate_cpu(&self, ns: u64) {
        add(&self.slot.populate_cpu_ns, ns);
    }

    /// Counts the wall clock of a population; of one that all do together one thread counts it.
    pub fn count_populate(&self, ns: u64) {
        add(&self.slot.populate_ns, ns);
    }

    /// Does something, and remembers how long it took if nothing of its kind took longer.
    pub fn timed<T>(&self, what: Waited, act: impl FnOnce() -> T) -> T {
        let mut since = now_ns();
        let result = act();
        self.lap(what, &mut since);
        result
    }

    /// The same for things in a row: `since` is when the one before ended, and becomes now.
    pub fn lap(&self, what: Waited, since: &mut u64) {
        let now = now_ns();
        self.waited(what, now - *since);
        *since = now;
    }

    /// Counts a wait of so many nanoseconds.
    pub fn waited(&self, what: Waited, ns: u64) {
        let longest = &self.slot.longest_ns[what as usize];
        // Relaxed: as in `add`.
        if ns > longest.load(Ordering::Relaxed) {
            longest.store(ns, Ordering::Relaxed);
        }
        add(&self.slot.waits[what as usize][range_of(ns)], 1);
        if what == Waited::Touch {
            add(&self.slot.touches[fine_range_of(ns)], 1);
        }
    }
}

/// Adds to a counter of this thread's own slot; the parent may read it at any moment.
fn add(counter: &AtomicU64, count: u64) {
    // Relaxed: only this thread writes it, and it stands for itself.
    let so_far = counter.load(Ordering::Relaxed);
    counter.store(so_far + count, Ordering::Relaxed);
}

/// The threads' way to the start: held back until all are there.
#[derive(Clone, Copy, PartialEq)]
enum Gate {
    Closed,
    Open,
    /// A thread could not be made: go home.
    Abandoned,
}

enum Word {
    Ready,
    /// Of a worker or not.
    Done(bool, Result<(), String>),
}

/// Runs `body` on every thread, with stacks of `stack` bytes; stops them after `seconds`, if given, by
/// `Member::stopped`. The first error stops all and is returned.
pub fn measure(
    bench: &Bench,
    stack: usize,
    seconds: Option<f64>,
    body: impl Fn(&Member) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let gate = (Mutex::new(Gate::Closed), Condvar::new());
    let stop = AtomicBool::new(false);
    let mut workers = bench.job.threads;
    let before = OnceCell::new();
    let (tell, hear) = channel();
    let open = |to: Gate| {
        *gate.0.lock().expect("no thread panics at the gate") = to;
        gate.1.notify_all();
    };
    let wait = || {
        let closed = gate.0.lock().expect("no thread panics at the gate");
        let open = gate.1.wait_while(closed, |gate| *gate == Gate::Closed);
        *open.expect("no thread panics at the gate") == Gate::Open
    };
    let result = thread::scope(|scope| {
        for (number, slot) in bench.counters.slots().iter().enumerate() {
            let member = Member {
                number,
                slot,
                stop: &stop,
            };
            let (tell, wait, body) = (tell.clone(), &wait, &body);
            let works = number < workers;
            let run = move || {
                // The hearer is gone only after an abandoned start.
                let _ = tell.send(Word::Ready);
                if wait() {
                    let done = body(&member);
                    if works {
                        bench.counters.end_thread();
                    }
                    let _ = tell.send(Word::Done(works, done));
                }
            };
            let thread = thread::Builder::new().stack_size(stack);
            if let Err(e) = thread.spawn_scoped(scope, run) {
                open(Gate::Abandoned);
                return Err(format!("cannot start thread {number}: {e}"));
            }
        }
        drop(tell);
        for _ in bench.counters.slots() {
            hear.recv().map_err(|e| format!("a thread is lost: {e}"))?;
        }
        // The preparation is not part of the run.
        let _ = before.set(bench.stats().unwrap_or_default());
        bench.counters.start(Usage::own());
        let end = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        open(Gate::Open);
        let mut result = Ok(());
        loop {
            let now = Instant::now();
            let over = end.is_some_and(|end| now >= end);
            if over || result.is_err() || workers == 0 {
                stop.store(true, Ordering::Relaxed);
            }
            let tick = match end {
                Some(end) if !over => TICK.min(end - now),
                _ => TICK,
            };
            match hear.recv_timeout(tick) {
                Ok(Word::Done(works, done)) => {
                    workers -= usize::from(works);
                    result = result.and(done);
                    if let Err(text) = &result {
                        bench.counters.fail_meanwhile(text);
                    }
                }
                Ok(Word::Ready) => {}
                Err(RecvTimeoutError::Timeout) => publish(bench, &before),
                // All have ended (or panicked, which the scope passes on).
                Err(RecvTimeoutError::Disconnected) => return result,
            }
        }
    });
    publish(bench, &before);
    bench.counters.finish(Usage::own());
    result
}

fn publish(bench: &Bench, before: &OnceCell<EngineStats>) {
    if let (Some(stats), Some(before)) = (bench.stats(), before.get()) {
        bench.counters.publish(stats.since(before));
    }
}
