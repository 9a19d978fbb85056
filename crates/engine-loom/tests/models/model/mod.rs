//! Code that all models share.

pub mod completed;
pub mod engine;
pub mod private;
pub mod rwsem;
pub mod vma;
pub mod writable;

use std::cell::Cell;
use std::fmt::Debug;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use loom::model::Builder;
use loom::thread::JoinHandle;
use softfault_engine_loom::clock::Clock;
use softfault_engine_loom::mm::backing::VmOps;
use softfault_engine_loom::mm::{Attributes, Backing};
use sync::model::Timeouts;

/// Explores every schedule of `model` with at most `preemptions` preemptions, and every value that its loads may
/// return, in a process of its own.
///
/// Nobody's time is ever up: a sleep with a timeout that nobody ends is a
/// wake-up that was lost, and fails the model.
///
/// Loom returns as if all were well when it stops early, by its settings or by
/// the environment's: here it has to say that it was through.
pub fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    apart(|| {
        schedules(preemptions, model);
    });
}

/// The same for a test that looks at what its schedules came to: within [`apart`]. Returns their number.
pub fn schedules(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) -> usize {
    check(&bounded(capped(preemptions)), Timeouts::Never, model)
}

/// At most `SOFTFAULT_LOOM_PREEMPTIONS`, where that is set: `.ci/run` has no time for more.
fn capped(preemptions: Option<usize>) -> Option<usize> {
    let Ok(most) = std::env::var("SOFTFAULT_LOOM_PREEMPTIONS") else {
        return preemptions;
    };
    let most = most
        .parse()
        .expect("SOFTFAULT_LOOM_PREEMPTIONS is a number");
    Some(preemptions.map_or(most, |bound| bound.min(most)))
}

/// Explores a model and returns all its answers, each once: within [`apart`].
pub fn answers<T: Clone + PartialEq + Debug + Send + 'static>(
    preemptions: usize,
    model: impl Fn() -> T + Send + Sync + 'static,
) -> Vec<T> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    schedules(Some(preemptions), move || {
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

/// A thread of a model. Boxed, as the model itself is.
#[track_caller]
pub fn spawn<T: 'static>(thread: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let thread: Box<dyn FnOnce() -> T> = Box::new(thread);
    loom::thread::spawn(thread)
}

/// No bound but that of preemptions.
pub fn bounded(preemptions: Option<usize>) -> Builder {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.max_duration = None;
    builder.max_permutations = None;
    builder.checkpoint_file = None;
    builder.expect_explicit_explore = false;
    builder
}

/// Runs the test that calls this, or what is left of it, in a process of its own; here only the first time.
///
/// Each schedule maps stacks for its threads and unmaps them. Models of one process would wait for its one mmap_lock and
/// flush the TLBs of each other's processors: beside one another they took twice the time.
pub fn apart(test: impl FnOnce()) {
    const APART: &str = "SOFTFAULT_MODEL_APART";
    thread_local!(static IS_DONE: Cell<bool> = const { Cell::new(false) });
    let thread = std::thread::current();
    // Where tests run one by one they run in the main thread, and disturb nobody.
    let name = thread.name().filter(|name| *name != "main");
    let Some(name) = name.filter(|_| std::env::var_os(APART).is_none()) else {
        return test();
    };
    // The process ran the whole test.
    if IS_DONE.replace(true) {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let process = Command::new(own)
        .args(["--exact", name, "--nocapture"])
        .env(APART, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&process.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&process.stderr));
    assert!(
        process.status.success() && said.contains(" 1 passed"),
        "{name}: {}",
        process.status
    );
}

/// Runs the model and fails unless it was explored to its end.
pub fn check(
    builder: &Builder,
    timeouts: Timeouts,
    model: impl Fn() + Sync + Send + 'static,
) -> usize {
    check_boxed(builder, timeouts, Box::new(model))
}

/// The same, by which loom's loop is compiled once, and not for each model.
fn check_boxed(builder: &Builder, timeouts: Timeouts, model: Box<dyn Fn() + Sync + Send>) -> usize {
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
