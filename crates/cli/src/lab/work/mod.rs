//! The workloads, as the child runs them: each prepares outside the measured part, then hands a body to
//! `gang::measure`, which runs it on every thread.

pub mod anon;
pub mod append;
mod gang;
pub mod hugetlb;
pub mod loops;
pub mod many;
mod meeting;
mod memory;
pub mod orders;
mod peer;
pub mod pft;
mod processes;
pub mod random;
pub mod scan;
pub mod snapshot;
pub mod sparse;
pub mod spf;
pub mod storm;
pub mod swap_retry;
pub mod thrash;
pub mod warm_start;
pub mod write;

use super::counters::Counters;
use super::engine::{Anonymous, Engine};
use super::job::Job;
use super::memory::pages::Pages;
use super::reader::Source;
use super::stats::EngineStats;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Of a thread that touches anonymous memory.
const STACK: usize = 256 << 10;

/// The context of every workload. All fields immutable.
pub struct Bench<'a> {
    /// The work to do.
    pub job: &'a Job,
    /// Where to count.
    pub counters: &'a Counters,
    /// The engine that maps; `None` for pread.
    pub engine: Option<&'a dyn Engine>,
}

impl Bench<'_> {
    /// The engine's counters, if it counts.
    fn stats(&self) -> Option<EngineStats> {
        self.engine.and_then(|engine| engine.stats())
    }

    /// File `number` of the job, opened anew and not mapped yet.
    fn open(&self, number: usize) -> Result<Source, String> {
        Source::open(self.job.files[number], self.engine.is_none())
    }

    /// Anonymous memory.
    fn map_anonymous(&self, bytes: u64) -> Result<Box<dyn Anonymous>, String> {
        let engine = self.engine.expect("the plan refuses pread here");
        let map = engine.map_anonymous(bytes as usize);
        map.map_err(|e| format!("cannot map anonymous memory: {e}"))
    }

    /// Anonymous memory of all threads, filled by as many as work on it; in a run that is given up before
    /// nothing is counted.
    fn populated<'m>(&self, memory: &'m dyn Anonymous, pages: u64) -> Result<Pages<'m>, String> {
        let all = Pages::new(memory, pages, self.job.seed);
        let each = pages.div_ceil(self.job.threads as u64).max(1);
        let failed = AtomicBool::new(false);
        let fill = |thread: u64| {
            let range = (thread * each).min(pages)..((thread + 1) * each).min(pages);
            // Relaxed: only ends loops.
            let filled = all.populate(range, || failed.load(Ordering::Relaxed));
            filled.inspect_err(|_| failed.store(true, Ordering::Relaxed))
        };
        let results: Vec<_> = thread::scope(|scope| {
            let threads = (0..self.job.threads as u64).map(|thread| {
                let start = thread::Builder::new().stack_size(STACK);
                start.spawn_scoped(scope, move || fill(thread))
            });
            let threads: Vec<_> = threads.collect();
            let join = |thread: io::Result<ScopedJoinHandle<Result<(), String>>>| match thread {
                Ok(thread) => thread.join().expect("no thread panics here"),
                Err(e) => Err(format!("cannot start a thread: {e}")),
            };
            threads.into_iter().map(join).collect()
        });
        results.into_iter().collect::<Result<(), String>>()?;
        Ok(all)
    }

    /// Checks all populated pages, for at most the duration of the run: the check is not a part of the run.
    fn swept(&self, pages: &Pages) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs_f64(self.job.seconds);
        for page in 0..pages.count() {
            pages.sweep(page)?;
            if page % 64 == 0 && Instant::now() >= end {
                break;
            }
        }
        Ok(())
    }

    /// The job's first file, mapped.
    fn source(&self) -> Result<Source, String> {
        let mut source = self.open(0)?;
        source.map(self.engine)?;
        Ok(source)
    }
}
