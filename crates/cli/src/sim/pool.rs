//! Runs simulations on the CPUs that there are: each is one thread of the
//! system, and none knows of another. Results are in the order of the plan.

use super::plan::Planned;
use crate::error::Error;
use crate::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use softfault::clock::thread_cpu_ns;
use softfault_sim::{Outcome, Progress, Trouble, run_watched};
use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A run that was made, and how long it took here.
pub type Ran = (Result<Outcome, Trouble>, Took);

/// The cost of a simulation on this machine.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Wall clock.
    pub wall: Duration,
    /// Processor time of its thread: less, where others want the processor too.
    pub cpu: Duration,
}

/// A run is so many parts in the progress bar.
const PARTS: u32 = 1000;
/// How often the bar is drawn and signals are seen.
const LOOK: Duration = Duration::from_millis(50);
/// How long simulations have to end by themselves after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// The state that the threads share.
struct Pool {
    planned: Vec<Planned>,
    /// Places in `planned`, the long runs first, or the last would run alone.
    order: Vec<usize>,
    /// The next in `order`.
    next: AtomicUsize,
    /// How far each has got, in `PARTS`.
    parts: Vec<AtomicU32>,
    results: Vec<Mutex<Option<Ran>>>,
    interrupt: Interrupt,
}

/// Runs all of them, `at_a_time` at a time.
pub fn run_all(
    planned: &[Planned],
    at_a_time: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Ran>, Error> {
    let mut order: Vec<usize> = (0..planned.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(planned[at].job.cores * planned[at].job.threads));
    let pool = Arc::new(Pool {
        planned: planned.to_vec(),
        order,
        next: AtomicUsize::new(0),
        parts: planned.iter().map(|_| AtomicU32::new(0)).collect(),
        results: planned.iter().map(|_| Mutex::new(None)).collect(),
        interrupt: interrupt.clone(),
    });
    let bar = bar(planned);
    let mut workers = Vec::new();
    for _ in 0..at_a_time.min(planned.len()) {
        let pool = pool.clone();
        match std::thread::Builder::new().spawn(move || pool.work()) {
            Ok(worker) => workers.push(worker),
            Err(e) if workers.is_empty() => {
                return Err(Error::input(format_args!("cannot start a thread: {e}")));
            }
            // Those that there are run all.
            Err(_) => break,
        }
    }
    let mut over = None;
    while workers.iter().any(|worker| !worker.is_finished()) {
        let parts = pool.parts.iter();
        let done: u32 = parts.map(|part| part.load(Ordering::Relaxed)).sum();
        bar.set_position(u64::from(done));
        std::thread::sleep(LOOK);
        // A simulation that does not get to where it looks is left behind: the
        // process ends without it.
        if interrupt.check().is_err()
            && *over.get_or_insert(Instant::now() + GRACE) < Instant::now()
        {
            break;
        }
    }
    bar.finish_and_clear();
    interrupt.check()?;
    let done = pool.results.iter().map(|result| {
        let result = result.lock().expect("nobody panics with it").take();
        result.expect("all were run: nothing interrupted")
    });
    Ok(done.collect())
}

impl Pool {
    fn work(&self) {
        while let Some(&at) = self.order.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.interrupt.check().is_err() {
                return;
            }
            let ran = one(&self.planned[at], &self.interrupt, &self.parts[at]);
            *self.results[at].lock().expect("nobody panics with it") = Some(ran);
        }
    }
}

fn one(planned: &Planned, interrupt: &Interrupt, part: &AtomicU32) -> Ran {
    let (begin, cpu) = (Instant::now(), thread_cpu_ns());
    let watch = |progress: Progress| {
        part.store(
            (progress.fraction() * f64::from(PARTS)) as u32,
            Ordering::Relaxed,
        );
        match interrupt.check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let result = catch_unwind(AssertUnwindSafe(|| run_watched(&planned.job, &watch)));
    let result = result.unwrap_or_else(|panic| Err(Trouble::Failed(words(&*panic))));
    part.store(PARTS, Ordering::Relaxed);
    let took = Took {
        wall: begin.elapsed(),
        cpu: Duration::from_nanos(thread_cpu_ns() - cpu),
    };
    (result, took)
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = (panic.downcast_ref::<&str>().copied())
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a word"))
}

fn bar(planned: &[Planned]) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {elapsed} ({eta} left)");
    let name = planned[0].job.workload.name();
    ProgressBar::new(planned.len() as u64 * u64::from(PARTS))
        .with_style(style.expect("a well-formed template"))
        .with_prefix(format!("sim {name}, {} runs", planned.len()))
}
