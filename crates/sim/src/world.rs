//! The machine. Over the std world's façade still: real threads, real time, and
//! nothing of the topology.

use std::cell::Cell;
use std::time::{Duration, Instant};
use sync::topology::Topology;

/// How to make a machine.
pub struct Config {
    pub topology: Topology,
    pub cores: usize,
    pub seed: u64,
    pub trace: bool,
    /// Virtual nanoseconds that a thread may wait.
    pub patience_ns: u64,
}

/// What the machine counted.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Virtual nanoseconds of the whole run.
    pub elapsed_ns: u64,
    /// Operations of the façade.
    pub operations: u64,
    /// Switches from one thread to another.
    pub switches: u64,
    /// Of the trace: the same for the same run.
    pub digest: u64,
    /// Where time went.
    pub hot: Vec<HotLine>,
}

/// A place in the source whose operations waited for cache lines.
#[derive(Debug, Clone)]
pub struct HotLine {}

/// Deadlock or starvation.
#[derive(Debug)]
pub struct Stuck;

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stuck")
    }
}

thread_local! {
    static RANDOM: Cell<u64> = const { Cell::new(1) };
}

fn epoch() -> Instant {
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Runs `main` as the first thread of a machine, until all threads have ended.
pub fn run<R>(config: Config, main: impl FnOnce() -> R) -> Result<(R, Report), Stuck> {
    let _nothing_of = (
        config.topology,
        config.cores,
        config.seed,
        config.trace,
        config.patience_ns,
    );
    let before = now_ns();
    let result = main();
    let report = Report {
        elapsed_ns: now_ns() - before,
        ..Report::default()
    };
    Ok((result, report))
}

/// The clock of the calling thread.
pub fn now_ns() -> u64 {
    epoch().elapsed().as_nanos() as u64
}

/// Processor time of the calling thread: not known here.
pub fn cpu_ns() -> u64 {
    now_ns()
}

/// Sleeps.
pub fn sleep_until_ns(at: u64) {
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
}

/// Takes time from the other processors: there are none here.
pub fn interrupt_others(_ns: u64) -> usize {
    0
}

/// A thread with a name and a nice value.
pub fn spawn_named<T: Send + 'static>(
    name: &str,
    _nice: i8,
    f: impl FnOnce() -> T + Send + 'static,
) -> sync::thread::JoinHandle<T> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(f).expect("a thread")
}
