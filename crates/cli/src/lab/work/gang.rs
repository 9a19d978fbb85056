//! Runs one body on N threads and measures from the moment all are ready until the last has ended.

use super::super::counters::Slot;
use super::super::stats::EngineStats;
use super::super::usage::Usage;
use super::Bench;
use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the clock, and two publications of the engine's counters.
const TICK: Duration = Duration::from_millis(100);

/// What a body knows besides its own work.
pub struct Member<'a> {
    /// Which thread it is.
    pub number: usize,
    /// Its counters.
    pub slot: &'a Slot,
    stop: &'a AtomicBool,
}

impl Member<'_> {
    /// Whether the time is over or another thread has failed.
    pub fn stopped(&self) -> bool {
        // Relaxed: only ends loops; what threads wrote is seen by joining them.
        self.stop.load(Ordering::Relaxed)
    }

    /// Counts `accesses` more touched pages.
    pub fn count(&self, accesses: u64) {
        // Only this thread writes its slot; the parent may read at any moment.
        let so_far = self.slot.accesses.load(Ordering::Relaxed);
        self.slot
            .accesses
            .store(so_far + accesses, Ordering::Relaxed);
    }

    /// Counts one more round.
    pub fn count_round(&self) {
        let so_far = self.slot.rounds.load(Ordering::Relaxed);
        self.slot.rounds.store(so_far + 1, Ordering::Relaxed);
    }
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
    Done(Result<(), String>),
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
            let run = move || {
                // The hearer is gone only after an abandoned start.
                let _ = tell.send(Word::Ready);
                if wait() {
                    let done = body(&member);
                    bench.counters.end_thread();
                    let _ = tell.send(Word::Done(done));
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
        // What was prepared before is not part of the run.
        let _ = before.set(bench.stats().unwrap_or_default());
        bench.counters.start(Usage::own());
        let end = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        open(Gate::Open);
        let mut result = Ok(());
        loop {
            let now = Instant::now();
            let over = end.is_some_and(|end| now >= end);
            if over || result.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            let tick = match end {
                Some(end) if !over => TICK.min(end - now),
                _ => TICK,
            };
            match hear.recv_timeout(tick) {
                Ok(Word::Done(Err(e))) => result = result.and(Err(e)),
                Ok(_) => {}
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
