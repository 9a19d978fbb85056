//! The plan of a lab run: the arguments, checked and with their defaults filled in.
//!
//! `args` has the command line, `workload` the options of each workload, `refuse` those without use for it, `pattern` its
//! variants, and `work` the work of a child for one.

mod args;
mod pattern;
mod refuse;
mod work;
mod workload;

pub use args::{MakeArgs, RunArgs};
pub use pattern::Pattern;
pub use workload::{Files, Workload};

use super::fill::{FILE_MAX, PAGE, WORDS};
use super::huge_pool::HUGE;
use super::job::Swap;
use super::work::loops::BATCH;
use crate::error::Error;
use crate::results::on::{On, twice};
use crate::size;
use clap::ValueEnum;
use std::path::PathBuf;
use std::time::Duration;

/// Below this not even an empty process fits into a cgroup and does anything.
const MEMORY_MIN: u64 = 4 << 20;
/// Bytes of memory that the slowest engine populates in a second.
const POPULATED_A_SECOND: f64 = (8 << 20) as f64;
/// More threads than any machine here makes sense of.
pub const THREADS_MAX: usize = 10_000;
/// Of a run, and until it is given up.
pub const SECONDS_MAX: f64 = 1e6;
/// More runs of a row than anybody waits for, or a table of them has room.
const MOST_REPEATS: u32 = 10_000;

/// Where the file comes from.
#[derive(Clone, Debug)]
pub enum FileFrom {
    /// The caller has it.
    Path(PathBuf),
    /// It is made, of so many bytes.
    Made(u64),
}

/// A checked plan. All fields immutable.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workload to run.
    pub workload: Workload,
    /// Its patterns.
    pub patterns: Vec<Pattern>,
    /// On which engines; none twice.
    pub on: Vec<On>,
    /// Over which file, or so many bytes of memory.
    pub file: FileFrom,
    /// Where files are made.
    pub dir: PathBuf,
    /// Budget in bytes.
    pub memory: u64,
    /// Numbers of threads, each a row.
    pub threads: Vec<usize>,
    /// Whether runs end with their time.
    pub timed: bool,
    /// Length of timed runs.
    pub seconds: f64,
    /// Percent of the pages that sparse touches.
    pub touch: f64,
    /// Percent of the accesses to anonymous memory larger than the budget that write.
    pub writes: u64,
    /// Pages between two flushes of write.
    pub flush_every: Option<u64>,
    /// Runs of each row.
    pub repeat: u32,
    /// Seed.
    pub seed: u64,
    /// When a run is killed.
    pub timeout: Duration,
    /// Whether the whole system's caches are dropped before a run.
    pub drop_system_caches: bool,
}

impl Plan {
    /// Checks the arguments and fills in the defaults.
    pub fn new(args: &RunArgs) -> Result<Self, Error> {
        let workload = args.workload;
        let refuse = |text: &str| Err(Error::input(text));
        if args.memory < MEMORY_MIN {
            let min = size::show(MEMORY_MIN);
            return Err(Error::input(format_args!(
                "--memory must be at least {min}"
            )));
        }
        workload.refuse_strangers(args)?;
        let on = at_read_aheads(&args.on, &args.read_ahead_kb)?;
        check_engines(workload, &on)?;
        let touch = args.touch.unwrap_or(1.0);
        if !(touch > 0.0 && touch <= 100.0) {
            return refuse("--touch must be above 0 and at most 100");
        }
        let writes = args.writes.unwrap_or(workload.writes());
        if writes > 100 {
            return refuse("--writes must be at most 100");
        }
        let defaults = workload.defaults(args.memory);
        let threads = match args.threads.is_empty() {
            true => defaults.threads.to_vec(),
            false => args.threads.clone(),
        };
        let most = match workload {
            // A word each in a page.
            Workload::Write => WORDS as usize,
            _ => THREADS_MAX,
        };
        if !threads.iter().all(|threads| (1..=most).contains(threads)) {
            return Err(Error::input(format_args!("--threads must be 1 to {most}")));
        }
        if let Some(twice) = twice(&threads) {
            return Err(Error::input(format_args!("--threads has {twice} twice")));
        }
        if let Some(twice) = twice(&args.pattern) {
            return Err(Error::input(format_args!("--pattern has {twice} twice")));
        }
        if let Some(twice) = twice(&args.files) {
            let value = twice.to_possible_value().expect("none is hidden");
            let name = value.get_name();
            return Err(Error::input(format_args!("--files has {name} twice")));
        }
        if args.flush_every == Some(0) {
            return refuse("--flush-every must be at least 1");
        }
        if args.repeat == 0 {
            return refuse("--repeat must be at least 1");
        }
        if args.repeat > MOST_REPEATS {
            return refuse(&format!("--repeat must be at most {MOST_REPEATS}"));
        }
        let seconds_given = args.seconds.or(defaults.timed.then_some(defaults.seconds));
        let populating = match workload.swaps() {
            true => args.file_size.unwrap_or(defaults.file_bytes) as f64 / POPULATED_A_SECOND,
            false => 0.0,
        };
        let usual = match seconds_given {
            Some(seconds) if workload != Workload::Snapshot => 3.0 * seconds + populating,
            _ => 120.0 + populating,
        };
        let timeout = args.timeout.unwrap_or(usual.min(SECONDS_MAX));
        let seconds = args.seconds.unwrap_or(defaults.seconds);
        for (name, value) in [("--seconds", seconds), ("--timeout", timeout)] {
            if !(value > 0.0 && value <= SECONDS_MAX) {
                return Err(Error::input(format_args!(
                    "{name} must be above 0 and at most 1000000"
                )));
            }
        }
        let file = match &args.file {
            Some(path) => FileFrom::Path(path.clone()),
            None if args.dir.is_dir() => {
                let bytes = whole_pages(args.file_size.unwrap_or(defaults.file_bytes))?;
                let bytes = match workload {
                    Workload::Hugetlb => bytes.next_multiple_of(HUGE),
                    _ => bytes,
                };
                FileFrom::Made(in_memory(args, bytes, &threads)?)
            }
            None => {
                let dir = args.dir.display();
                return Err(Error::input(format_args!("{dir} is not a directory")));
            }
        };
        Ok(Self {
            workload,
            patterns: pattern::patterns(args)?,
            on,
            file,
            dir: args.dir.clone(),
            memory: args.memory,
            threads,
            timed: seconds_given.is_some(),
            seconds,
            touch,
            writes,
            flush_every: args.flush_every,
            repeat: args.repeat,
            seed: args.seed,
            timeout: Duration::from_secs_f64(timeout),
            drop_system_caches: !args.keep_system_caches,
        })
    }

    /// Bytes that a row with so many threads is over, where the workload reads no file.
    pub fn anonymous_bytes(&self, threads: usize) -> Option<u64> {
        match self.file {
            FileFrom::Made(bytes) if self.workload.is_anonymous() => Some(bytes * threads as u64),
            FileFrom::Made(bytes)
                if self.workload.swaps() || self.workload == Workload::Hugetlb =>
            {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// The budgets of all processes of a run together: a child of fork has one of its own, in the same cgroup.
    pub fn budgets(&self, on: On) -> u64 {
        match self.workload == Workload::Snapshot && !on.is_kernel() {
            true => 2 * self.memory,
            false => self.memory,
        }
    }

    /// The cgroup limit of a run on `on`.
    pub fn limit(&self, on: On) -> Option<u64> {
        on.limit(self.budgets(on))
    }

    /// Where pages go that memory has no room for.
    pub fn swap(&self) -> Option<Swap> {
        match self.file {
            FileFrom::Made(bytes) if self.workload.swaps() => Some(Swap {
                dir: self.dir.clone(),
                bytes: self.workload.swap_bytes(bytes),
            }),
            _ => None,
        }
    }
}

/// The engines of which those that read ahead are there once for each read-ahead. One that was given a
/// read-ahead of its own keeps it.
fn at_read_aheads(on: &[On], all_kb: &[u32]) -> Result<Vec<On>, Error> {
    if all_kb.is_empty() {
        return Ok(on.to_vec());
    }
    if let Some(twice) = twice(all_kb) {
        return Err(Error::input(format_args!(
            "--read-ahead-kb has {twice} twice"
        )));
    }
    let reached = |on: &On| on.reads_ahead() && on.read_ahead_kb().is_none();
    if !on.iter().any(reached) {
        return Err(Error::input(
            "--read-ahead-kb is for kernel, kernel-sequential and kernel-hugepage, and --on has none of them",
        ));
    }
    let at_each = |&on: &On| match reached(&on) {
        true => (all_kb.iter())
            .filter_map(|&kb| on.at_read_ahead(kb))
            .collect(),
        false => vec![on],
    };
    Ok(on.iter().flat_map(at_each).collect())
}

fn check_engines(workload: Workload, on: &[On]) -> Result<(), Error> {
    if let Some(on) = twice(on) {
        return Err(Error::input(format_args!("--on has {on} twice")));
    }
    on.iter().try_for_each(|&on| workload.refuse_engine(on))
}

/// Bytes of anonymous memory for each thread: pages that do not fit go nowhere. Half of the budget, since
/// page tables and threads need some too.
fn in_memory(args: &RunArgs, bytes: u64, threads: &[usize]) -> Result<u64, Error> {
    if !args.workload.is_anonymous() {
        return Ok(bytes);
    }
    // As many mappings of these bytes a thread has at a time.
    let mappings = match args.workload {
        Workload::Loops => BATCH as u64,
        _ => 1,
    };
    let threads = *threads.iter().max().expect("at least one") as u64;
    let most = args.memory / 2 / threads / mappings;
    match bytes <= most {
        true => Ok(bytes),
        false if args.file_size.is_none() && most >= PAGE => Ok(most / PAGE * PAGE),
        false => Err(Error::input(format_args!(
            "--file-size: for each thread {} of anonymous memory, and all in half of --memory",
            size::show(bytes.saturating_mul(mappings))
        ))),
    }
}

/// Made files consist of whole pages: their length is rounded up.
pub fn whole_pages(bytes: u64) -> Result<u64, Error> {
    match bytes.checked_next_multiple_of(PAGE) {
        Some(bytes) if bytes <= FILE_MAX => Ok(bytes),
        _ => Err(Error::input(format_args!(
            "--file-size must be at most {}",
            size::show(FILE_MAX)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn planned(line: &str) -> Result<Plan, Error> {
        let command = RunArgs::augment_args(clap::Command::new("run"));
        let matches = command.try_get_matches_from(format!("run {line}").split(' '));
        Plan::new(&RunArgs::from_arg_matches(&matches.unwrap()).unwrap())
    }

    #[test]
    fn all_regions_of_loops_fit_into_half_of_the_memory() {
        let bytes = |line: &str| match planned(line).unwrap().file {
            FileFrom::Made(bytes) => bytes,
            FileFrom::Path(_) => unreachable!(),
        };
        assert_eq!(bytes("loops --threads 2 --memory 8M"), 16 << 10);
        assert_eq!(bytes("loops --threads 8 --memory 8M"), 8 << 10);
        assert!(planned("loops --threads 8 --memory 8M --file-size 16K").is_err());
    }

    #[test]
    fn seconds_are_told_of_patterns_that_end_with_them() {
        let told = |line: &str| {
            let plan = planned(line).unwrap();
            let all = plan.patterns.iter();
            let all = all.map(|pattern| pattern.has_seconds(plan.timed));
            all.collect::<Vec<_>>()
        };
        assert_eq!(told("scan --pattern cold --seconds 3"), [false]);
        assert_eq!(told("write"), [false, true, true]);
        assert_eq!(told("swap-retry"), [false]);
        assert_eq!(told("swap-retry --seconds 3"), [true]);
        assert_eq!(told("snapshot"), [true]);
    }
}
