//! Code that all models share.

#![allow(dead_code, reason = "each model uses its part")]

pub mod completed;
pub mod engine;
pub mod private;
pub mod rwsem;
pub mod vma;
pub mod writable;

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use softfault_engine_loom::clock::Clock;
use softfault_engine_loom::mm::backing::VmOps;
use softfault_engine_loom::mm::{Attributes, Backing};
use sync::model::Timeouts;

/// Explores every schedule of `model` with at most `preemptions` preemptions,
/// and every value that its loads may return. Returns the number of schedules.
///
/// Nobody's time is ever up: a sleep with a timeout that nobody ends is a
/// wake-up that was lost, and fails the model.
///
/// Loom returns as if all were well when it stops early, by its settings or by
/// the environment's: here it has to say that it was through.
pub fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) -> usize {
    explore_with(preemptions, Timeouts::Never, model)
}

/// Explores a model and returns all its answers, each once.
pub fn answers<T: Clone + PartialEq + Debug + Send + 'static>(
    preemptions: usize,
    model: impl Fn() -> T + Send + Sync + 'static,
) -> Vec<T> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    explore(Some(preemptions), move || {
        let answer = model();
        let mut all = all.lock().unwrap();
        if !all.contains(&answer) {
            all.push(answer);
        }
    });
    let seen = seen.lock().unwrap().clone();
    println!("{seen:?}");
    seen
}

/// The same, with timeouts of the caller's choice.
pub fn explore_with(
    preemptions: Option<usize>,
    timeouts: Timeouts,
    model: impl Fn() + Sync + Send + 'static,
) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.max_duration = None;
    builder.max_permutations = None;
    builder.checkpoint_file = None;
    builder.expect_explicit_explore = false;
    check(&builder, timeouts, model)
}

/// Runs the model and fails unless it was explored to its end.
pub fn check(
    builder: &loom::model::Builder,
    timeouts: Timeouts,
    model: impl Fn() + Sync + Send + 'static,
) -> usize {
    let begin = processor_seconds();
    let begun = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let completed = completed::watch(|| {
        builder.check({
            let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
            move || {
                sync::model::begin(timeouts);
                begun.fetch_add(1, Relaxed);
                model();
                ended.fetch_add(1, Relaxed);
            }
        });
    });
    let (begun, ended) = (begun.load(Relaxed), ended.load(Relaxed));
    assert_eq!(begun, ended, "a schedule did not come to its end");
    assert!(
        completed,
        "stopped after {begun} schedules: not all of them"
    );
    assert!(begun > 1, "one schedule is no exploration");
    let bound = match builder.preemption_bound {
        Some(bound) => format!("{bound} preemptions"),
        None => "no bound".into(),
    };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a model");
    let took = processor_seconds() - begin;
    // `--nocapture` shows it; the documents' table is made of these lines.
    println!("loom | {name} | {bound} | {begun} schedules | {took:.2} s");
    begun
}

/// Seconds of a processor that this thread has used: other work on the
/// machine is no part of them.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).unwrap_or(0.0) / 1e9
}

/// A clock that stands still.
pub struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
}

/// Attributes whose parts must agree.
pub fn attributes(mark: u64) -> Attributes {
    Attributes {
        backing: Backing::new(Numbered(mark)),
        pgoff: mark,
        ..Attributes::default()
    }
}

/// A backing without pages, which has a number.
#[derive(Debug)]
struct Numbered(u64);

impl VmOps for Numbered {
    fn object(&self) -> *const () {
        core::ptr::without_provenance(self.0 as usize)
    }
}
