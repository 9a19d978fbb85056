//! Running a scenario under many schedules.
//!
//! ```text
//!   explore::scenario("fault_against_unmap", 5_000, |seed| { ... })
//! ```
//!
//! runs the closure so many times, each time with another seed, which decides the
//! scenario's draws and the order of threads. Without being told otherwise the seeds are
//! always the same, and begin with a number that comes from the name.
//!
//! | environment | does |
//! |---|---|
//! | `SOFTFAULT_SHUTTLE_SEED=n` | runs the schedule of seed n alone |
//! | `SOFTFAULT_SHUTTLE_SCHEDULES=n` | runs n schedules of each scenario |
//! | `SOFTFAULT_SHUTTLE_FROM=n` | begins with seed n: a schedule that nobody has run yet |
//!
//! A schedule that fails prints its seed and the command that runs it again.

use crate::point;
use crate::report;
pub use crate::schedule::Explored;
use crate::schedule::{Seeded, Shared};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Points after which a schedule counts as one that never ends.
const MOST_POINTS: usize = 400_000;
/// Bytes of a thread's stack.
const STACK: usize = 256 << 10;

/// A scenario and how it is run.
#[derive(Debug)]
pub struct Explore {
    name: &'static str,
    schedules: u64,
    may_stall: bool,
    seeds: Option<Vec<u64>>,
}

/// Runs `scenario` under `schedules` schedules, none of which may stall.
///
/// # Panics
/// As [`Explore::run`].
pub fn scenario(
    name: &'static str,
    schedules: u64,
    scenario: impl Fn(u64) + Send + Sync + 'static,
) -> Explored {
    Explore::new(name, schedules).run(scenario)
}

impl Explore {
    /// A scenario of this name (its test's: that is how it is run again), and
    /// how many schedules it has by default.
    pub fn new(name: &'static str, schedules: u64) -> Self {
        Self {
            name,
            schedules,
            may_stall: false,
            seeds: None,
        }
    }

    /// Threads of this scenario may sleep until their time is up although
    /// nobody else can run.
    pub fn may_stall(mut self) -> Self {
        self.may_stall = true;
        self
    }

    /// Runs these seeds, and no others whatever the environment says.
    pub fn seeds(mut self, seeds: &[u64]) -> Self {
        self.seeds = Some(seeds.to_vec());
        self
    }

    /// Runs the scenario; it is handed the seed.
    ///
    /// # Panics
    /// If a schedule fails: a thread panics, nobody can run, it does not end,
    /// or it stalls and may not. And if not all schedules were run.
    pub fn run(self, scenario: impl Fn(u64) + Send + Sync + 'static) -> Explored {
        self.run_boxed(Box::new(scenario))
    }

    /// The same, by which shuttle's loop is compiled once, and not for each scenario.
    fn run_boxed(self, scenario: Box<dyn Fn(u64) + Send + Sync>) -> Explored {
        let seeds: Box<dyn Iterator<Item = u64>> = match &self.seeds {
            Some(seeds) => Box::new(seeds.clone().into_iter()),
            None => self.seeds_of_environment(),
        };
        let wanted = match &self.seeds {
            Some(seeds) => seeds.len() as u64,
            None => self.wanted(),
        };
        let shared = Arc::new(Mutex::new(Shared::default()));
        let scheduler = Seeded::new(seeds, shared.clone());
        let may_stall = self.may_stall;
        let seed = shared.clone();
        let body = move || {
            let seed = lock(&seed).seed;
            scenario(seed);
            assert!(
                may_stall || point::stalls() == 0,
                "a thread slept until its time was up, and nobody else could run: a lost wake-up"
            );
        };
        let begin = Instant::now();
        report::begin(self.name, &shared);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            Runner::new(scheduler, config()).run(body)
        }));
        report::end();
        match ran {
            Ok(ran) => {
                let explored = lock(&shared).explored.clone();
                assert_eq!(ran as u64, wanted, "schedules of {}", self.name);
                assert_eq!(explored.schedules, wanted);
                self.say(&explored, begin);
                explored
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    fn wanted(&self) -> u64 {
        match variable("SEED") {
            Some(_) => 1,
            None => variable("SCHEDULES").unwrap_or(self.schedules),
        }
    }

    fn seeds_of_environment(&self) -> Box<dyn Iterator<Item = u64>> {
        let first = variable("SEED").or(variable("FROM"));
        let first = first.unwrap_or_else(|| {
            // FNV-1a of the name: scenarios do not draw alike.
            let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
            self.name.bytes().fold(0xCBF2_9CE4_8422_2325, hash) >> 16
        });
        Box::new((first..).take(self.wanted() as usize))
    }

    fn say(&self, explored: &Explored, begin: Instant) {
        let seconds = begin.elapsed().as_secs_f64();
        let Explored {
            schedules,
            points,
            longest,
            timeouts,
            stalls,
            ..
        } = explored;
        println!(
            "{}: {schedules} schedules, {seconds:.2} s, {:.0} schedules/s, {:.0} points each \
             (longest {longest}), {timeouts} early timeouts, {stalls} stalls",
            self.name,
            *schedules as f64 / seconds,
            *points as f64 / *schedules as f64,
        );
    }
}

pub(crate) fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(format!("SOFTFAULT_SHUTTLE_{name}")).ok()?;
    let number = text.trim().replace('_', "").parse();
    Some(number.unwrap_or_else(|_| panic!("SOFTFAULT_SHUTTLE_{name} is no number: {text}")))
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::FailAfter(MOST_POINTS);
    // The seed says all that the schedule would.
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    // Others' destructors would find state that the panic left half done.
    config
        .ungraceful_shutdown_config
        .immediately_return_on_panic = true;
    config
}
