//! A run's figures, as the JSON has them. `lab compare` reads them too.

use super::plan::Planned;
use super::pool::Took;
use crate::lab::waits::{LongestWaits, WAITED};
use serde::Serialize;
use softfault_sim::{LockRow, MmuKind, Mode, Outcome, Trouble};
use std::collections::BTreeMap;

/// A row; `None` (null) where a figure does not apply, or the run failed. All
/// times are virtual but for `wall_s` and `host_cpu_s`.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name on the command line.
    pub workload: &'static str,
    /// What tells it from others of the workload: its cores.
    pub pattern: String,
    /// What the lab would call the engine and its policies.
    pub on: String,
    /// The policies; `default` if all are.
    pub policy: String,
    /// The machine.
    pub topology: String,
    /// How far off that its costs may be, in percent.
    pub varied_percent: f64,
    /// CPUs.
    pub cores: usize,
    /// Threads.
    pub threads: usize,
    /// The seed of the run and of its machine.
    pub seed: u64,
    /// Which of the seeds, from 1.
    pub run: u32,
    /// Whose page tables.
    pub mmu: &'static str,
    /// pft: whether all threads share one mapping.
    pub shared: bool,
    /// The budget.
    pub memory_bytes: u64,
    /// Length of what a thread has for itself: its region or its file.
    pub file_bytes: u64,
    /// Faults.
    pub faults: u64,
    /// Virtual time of the measured part; in pft of the populations alone.
    pub elapsed_s: f64,
    /// Processor time of the workers in that.
    pub cpu_s: f64,
    /// Faults a second.
    pub faults_per_s: f64,
    /// Faults a second of processor time.
    pub faults_per_cpu: f64,
    /// Pages touched.
    pub accesses: u64,
    /// Touches that failed on bad pages of the disk.
    pub failed_accesses: u64,
    /// Rounds that were finished.
    pub rounds: u64,
    /// The same a second; null where rounds are not what it is about.
    pub rounds_per_s: Option<f64>,
    /// Faults that dropped their lock to wait for I/O.
    pub retry_mmap_drop: u64,
    /// Of those, the ones that came back in vain.
    pub retry_io_miss: u64,
    /// Their share in percent; null without any.
    pub miss_drop_percent: Option<f64>,
    /// Faults that waited for memory.
    pub memory_waits: u64,
    /// Bytes that the disk delivered.
    pub bytes_read: u64,
    /// Reads that the disk failed.
    pub read_errors: u64,
    /// Mapped pages that reclaim took.
    pub evicted: u64,
    /// Pages between memory and swap; null without swap.
    pub swap: Option<Swap>,
    /// Faults on huge pages; null in other workloads.
    pub huge: Option<Huge>,
    /// Waits for each lock, in each mode.
    pub locks: BTreeMap<String, Waits>,
    /// The longest single operations; null if none was timed.
    pub longest_waits: Option<LongestWaits>,
    /// Virtual time of the whole run, start and end included.
    pub virtual_s: f64,
    /// Operations of the facade in the whole run.
    pub operations: u64,
    /// Switches between simulated threads.
    pub switches: u64,
    /// Of all that happened, in hexadecimal: the same for the same run.
    pub digest: String,
    /// Wall clock.
    pub wall_s: f64,
    /// Processor time of the simulating thread.
    pub host_cpu_s: f64,
    /// Facade operations a second of wall clock.
    pub operations_per_wall_s: f64,
    /// Why the run failed, if it did.
    pub error: Option<String>,
}

/// Pages between memory and swap.
#[derive(Debug, Clone, Serialize)]
pub struct Swap {
    /// Written.
    pub pages_out: u64,
    /// Mapped again, touched or around what was.
    pub pages_in: u64,
    /// Dropped without a write: swap still had them.
    pub clean_drops: u64,
    /// Stayed, because somebody waited for them.
    pub rescued: u64,
    /// Times no slot was free.
    pub full: u64,
}

/// Waits of faults on huge pages, and their tables.
#[derive(Debug, Clone, Serialize)]
pub struct Huge {
    /// Locks that were found taken.
    pub waits: u64,
    /// All waits, in milliseconds.
    pub wait_total_ms: f64,
    /// The longest of one fault, in microseconds.
    pub longest_wait_us: f64,
    /// Pages taken from the pool.
    pub filled: u64,
    /// Leaf tables that spaces began to share.
    pub shared: u64,
    /// Those that they dropped.
    pub unshared: u64,
    /// Most bytes of tables when a round had touched all.
    pub table_bytes: u64,
}

/// One lock's waits, in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Waits {
    /// Times it was taken.
    pub count: u64,
    /// All waits.
    pub wait_total_us: f64,
    /// By times taken.
    pub wait_avg_us: f64,
    /// The longest.
    pub wait_max_us: f64,
    /// Waits below 1, 10, 100, 1,000, 10,000, 100,000, 1,000,000 us, and longer ones.
    pub wait_ranges: Vec<u64>,
}

impl Row {
    /// The row of a run.
    pub fn new(planned: &Planned, outcome: &Result<Outcome, Trouble>, took: Took) -> Self {
        let mut row = Self::empty(planned, took);
        match outcome {
            Ok(outcome) => row.fill(outcome),
            Err(trouble) => row.error = Some(trouble.to_string()),
        }
        row
    }

    fn empty(planned: &Planned, took: Took) -> Self {
        let job = &planned.job;
        let engine = match job.mmu {
            MmuKind::Soft => "soft",
            MmuKind::Uffd => "softfault",
        };
        let policies = job.policies.to_string();
        let shared = if job.shared { ", shared" } else { "" };
        Self {
            workload: job.workload.name(),
            pattern: format!("{} cores{shared}", job.cores),
            on: match policies.is_empty() {
                true => engine.into(),
                false => format!("{engine}:{policies}"),
            },
            policy: planned.policy.clone(),
            topology: job.topology.name.clone(),
            varied_percent: planned.varied,
            cores: job.cores,
            threads: job.threads,
            seed: job.seed,
            run: planned.number as u32 + 1,
            mmu: job.mmu.name(),
            shared: job.shared,
            memory_bytes: job.memory,
            file_bytes: job.region.max(job.file),
            faults: 0,
            elapsed_s: 0.0,
            cpu_s: 0.0,
            faults_per_s: 0.0,
            faults_per_cpu: 0.0,
            accesses: 0,
            failed_accesses: 0,
            rounds: 0,
            rounds_per_s: None,
            retry_mmap_drop: 0,
            retry_io_miss: 0,
            miss_drop_percent: None,
            memory_waits: 0,
            bytes_read: 0,
            read_errors: 0,
            evicted: 0,
            swap: None,
            huge: None,
            locks: BTreeMap::new(),
            longest_waits: None,
            virtual_s: 0.0,
            operations: 0,
            switches: 0,
            digest: String::new(),
            wall_s: took.wall.as_secs_f64(),
            host_cpu_s: took.cpu.as_secs_f64(),
            operations_per_wall_s: 0.0,
            error: None,
        }
    }

    fn fill(&mut self, outcome: &Outcome) {
        self.faults = outcome.faults;
        self.elapsed_s = outcome.elapsed_ns as f64 / 1e9;
        self.cpu_s = outcome.cpu_ns as f64 / 1e9;
        self.faults_per_s = outcome.faults_per_s();
        self.faults_per_cpu = outcome.faults_per_cpu();
        self.accesses = outcome.touches;
        self.failed_accesses = outcome.failed_touches;
        self.rounds = outcome.rounds;
        let in_rounds = ["thrash", "warm-start", "swap-retry"].contains(&self.workload);
        self.rounds_per_s = in_rounds.then(|| outcome.rounds_per_s());
        self.retry_mmap_drop = outcome.retry_mmap_drop;
        self.retry_io_miss = outcome.retry_io_miss;
        self.miss_drop_percent = outcome.miss_drop_percent();
        self.memory_waits = outcome.memory_waits;
        self.bytes_read = outcome.bytes_read;
        self.read_errors = outcome.read_errors;
        self.evicted = outcome.evicted;
        self.swap = outcome.swap.map(|swap| Swap {
            pages_out: swap.pages_out,
            pages_in: swap.pages_in,
            clean_drops: swap.clean_drops,
            rescued: swap.rescued,
            full: swap.full,
        });
        self.huge = outcome.huge.map(|huge| Huge {
            waits: huge.waits,
            wait_total_ms: huge.wait_ns as f64 / 1e6,
            longest_wait_us: huge.longest_ns as f64 / 1e3,
            filled: huge.filled,
            shared: huge.shared,
            unshared: huge.unshared,
            table_bytes: huge.table_bytes,
        });
        self.locks = outcome.locks.iter().map(waits).collect();
        let longest = &outcome.longest;
        let all: [u64; WAITED] = [
            longest.touch_ns,
            longest.priority_touch_ns,
            longest.map_ns,
            longest.unmap_ns,
            longest.fork_ns,
            0,
            0,
            0,
        ];
        self.longest_waits = LongestWaits::of(all);
        let report = &outcome.report;
        self.virtual_s = report.elapsed_ns as f64 / 1e9;
        self.operations = report.operations;
        self.switches = report.switches;
        self.digest = format!("{:016x}", report.digest);
        if self.wall_s > 0.0 {
            self.operations_per_wall_s = report.operations as f64 / self.wall_s;
        }
    }

    /// What it is, for a message.
    pub fn describe(&self) -> String {
        format!(
            "{} on {} of {}, {} threads, {}, seed {}",
            self.workload, self.pattern, self.topology, self.threads, self.policy, self.seed
        )
    }
}

/// A lock's name in the JSON, and its waits. VMA locks count their writers'
/// waits alone, and are called as in the lab.
fn waits(row: &LockRow) -> (String, Waits) {
    let name = match (row.name, row.mode) {
        ("vma_lock", Mode::Write) => "vma_lock".to_owned(),
        (name, mode) => format!("{}_{mode}", name.replace(' ', "_")),
    };
    let waits = &row.waits;
    let total_us = waits.total_ns as f64 / 1e3;
    let waits = Waits {
        count: waits.count,
        wait_total_us: total_us,
        wait_avg_us: total_us / waits.count.max(1) as f64,
        wait_max_us: waits.max_ns as f64 / 1e3,
        wait_ranges: waits.ranges.to_vec(),
    };
    (name, waits)
}
