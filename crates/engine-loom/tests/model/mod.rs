//! What all models share.

#![allow(dead_code, reason = "each model uses its part")]

pub mod vma;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use softfault_engine_loom::clock::Clock;
use softfault_engine_loom::mm::{Attributes, Backing};

/// Explores every schedule of `model` with at most `preemptions` preemptions,
/// and every value that its loads may return. Returns the number of schedules.
///
/// Loom returns as if all were well when it is told to stop early, by its own
/// settings or by the environment: here it is not.
pub fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) -> usize {
    let begin = std::time::Instant::now();
    let begun = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.max_duration = None;
    builder.max_permutations = None;
    builder.checkpoint_file = None;
    builder.check({
        let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
        move || {
            begun.fetch_add(1, Relaxed);
            model();
            ended.fetch_add(1, Relaxed);
        }
    });
    let (begun, ended) = (begun.load(Relaxed), ended.load(Relaxed));
    assert_eq!(begun, ended, "a schedule did not come to its end");
    assert!(begun > 1, "one schedule is no exploration");
    println!("{begun} schedules in {:.1?}", begin.elapsed());
    begun
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
        backing: Backing::Test(mark),
        pgoff: mark,
        ..Attributes::default()
    }
}
