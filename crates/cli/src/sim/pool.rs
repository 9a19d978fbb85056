//! Runs simulations on the CPUs that there are: each is one thread of the
//! system, and none knows of another. Results are in the order of the plan.

use super::plan::Planned;
use crate::error::Error;
use crate::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use softfault_sim::{Outcome, Progress, Trouble, run_watched};
use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A run that was made, and how long it took here.
pub type Ran = (Result<Outcome, Trouble>, Duration);

/// A run is so many parts in the progress bar.
const PARTS: u32 = 1000;
/// How often the bar is drawn and signals are seen.
const LOOK: Duration = Duration::from_millis(50);

/// Runs all of them, `at_a_time` at a time.
pub fn run_all(
    planned: &[Planned],
    at_a_time: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Ran>, Error> {
    let results: Vec<Mutex<Option<Ran>>> = planned.iter().map(|_| Mutex::new(None)).collect();
    let parts: Vec<AtomicU32> = planned.iter().map(|_| AtomicU32::new(0)).collect();
    // The long ones first, or the last would run alone.
    let mut order: Vec<usize> = (0..planned.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(planned[at].job.cores * planned[at].job.threads));
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            if interrupt.check().is_err() {
                return;
            }
            let ran = one(&planned[at], interrupt, &parts[at]);
            *results[at].lock().expect("nobody panics with it") = Some(ran);
        }
    };
    let bar = bar(planned);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_a_time.min(planned.len()))
            .map(|_| scope.spawn(work))
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            let done: u32 = parts.iter().map(|part| part.load(Ordering::Relaxed)).sum();
            bar.set_position(u64::from(done));
            std::thread::sleep(LOOK);
        }
    });
    bar.finish_and_clear();
    interrupt.check()?;
    let done = results.into_iter().map(|result| {
        let result = result.into_inner().expect("nobody panics with it");
        result.expect("all were run: nothing interrupted")
    });
    Ok(done.collect())
}

fn one(planned: &Planned, interrupt: &Interrupt, part: &AtomicU32) -> Ran {
    let begin = Instant::now();
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
    (result, begin.elapsed())
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
