//! The workloads, as the child runs them: each prepares outside the measured part, then hands a body to
//! `gang::measure`, which runs it on every thread.

mod gang;
mod meeting;
mod memory;
pub mod pft;
pub mod random;
pub mod scan;
pub mod sparse;
pub mod spf;
pub mod storm;
pub mod thrash;
pub mod warm_start;

use super::counters::Counters;
use super::engine::{Anonymous, Engine};
use super::job::Job;
use super::reader::Source;
use super::stats::EngineStats;

/// What every workload works with. All fields immutable.
pub struct Bench<'a> {
    /// What to do.
    pub job: &'a Job,
    /// Where to count.
    pub counters: &'a Counters,
    /// What maps; `None` for pread.
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

    /// The job's first file, mapped.
    fn source(&self) -> Result<Source, String> {
        let mut source = self.open(0)?;
        source.map(self.engine)?;
        Ok(source)
    }
}
