//! One run's figures, as the JSON has them.

use super::huge_counts::HugeRow;
use super::on::On;
use super::plan::{Pattern, Plan, Workload};
use super::stats::RANGES;
use super::stats::{EngineStats, LockRows};
use super::supervise::Outcome;
use super::swap_counts::SwapCounts;
use super::waits::{self, LongestWaits};
use serde::Serialize;
use std::collections::BTreeMap;

/// A row; `None` (null) where a figure does not apply or the machine does not tell it.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name on the command line.
    pub workload: &'static str,
    /// The order, pass or kind of files.
    pub pattern: String,
    /// What it ran on, policies that are not the default included.
    pub on: On,
    /// Which of the repeats, from 1.
    pub run: u32,
    /// Threads that touched pages; those that stand beside them (of high priority, forking, mapping) are
    /// not counted.
    pub threads: usize,
    /// Seed of the data and of random orders.
    pub seed: u64,
    /// Length of the file the touches go to, of all files where there are many, or of the anonymous memory
    /// of all threads.
    pub file_bytes: u64,
    /// The budget.
    pub memory_bytes: u64,
    /// Read-ahead in KiB of the device that the file lies on (or, without a file, the directory for files),
    /// as it was while the run was under way.
    pub read_ahead_kb: Option<u32>,
    /// Whether a memory cgroup bounded the run.
    pub limited: bool,
    /// Whether the run did not end in time and was killed; the figures are what it had done.
    pub gave_up: bool,
    /// Whether the touched bytes were compared with what the file must hold.
    pub checked: bool,
    /// Pages touched; each page of a scan counts once.
    pub accesses: u64,
    /// Wall clock until the last thread ended or was given up.
    pub elapsed_s: f64,
    /// Touched pages a second.
    pub accesses_per_s: Option<f64>,
    /// Thrash and warm start: files mapped, touched and unmapped.
    pub rounds: Option<u64>,
    /// Rounds a second.
    pub rounds_per_s: Option<f64>,
    /// Rounds of the thread that had the fewest.
    pub min_rounds: Option<u64>,
    /// Anonymous memory: pages touched for the first time since they were mapped.
    pub faults: Option<u64>,
    /// The same a second; of pft a second of populating, mapping and unmapping left out.
    pub faults_per_s: Option<f64>,
    /// The same a second of user and system time; of pft, of the populating threads' while they populate.
    pub faults_per_cpu: Option<f64>,
    /// Storm and spf: pairs of mapping and unmapping a second.
    pub maps_per_s: Option<f64>,
    /// The longest single operations, where they are timed.
    pub longest_waits: Option<LongestWaits>,
    /// Bytes read from storage, by /proc/self/io.
    pub bytes_read: Option<u64>,
    /// Bytes written to storage: by /proc/self/io, and of the kernel's swap by /proc/vmstat.
    pub bytes_written: Option<u64>,
    /// anon: the part of the accesses that no I/O was needed for.
    pub hit_rate: Option<f64>,
    /// The same of an exact LRU of the budget's size over the same accesses.
    pub lru_hit_rate: Option<f64>,
    /// User and system time of all threads.
    pub cpu_s: Option<f64>,
    /// The cgroup's own peak: all memory, page cache and page tables included.
    pub peak_bytes: Option<u64>,
    /// anon, swap-retry, snapshot: by how much the peak, the group's or the process's own, was above the budget.
    pub over_budget_bytes: Option<u64>,
    /// The most that the process itself had resident, ever.
    pub peak_rss_bytes: Option<u64>,
    /// snapshot: the same of its child.
    pub child_peak_rss_bytes: Option<u64>,
    /// The kernel's count of faults that needed I/O.
    pub major_faults: Option<u64>,
    /// The kernel's count of the others; a fault that softfault serves is none of these.
    pub minor_faults: Option<u64>,
    /// Faults that dropped their lock to wait for I/O, of files and of swap.
    pub retry_mmap_drop: Option<u64>,
    /// Of those, the ones whose folio was gone when they came back.
    pub retry_io_miss: Option<u64>,
    /// Pages read ahead of need.
    pub readahead_pages: Option<u64>,
    /// Of those, the ones that were touched.
    pub readahead_used: Option<u64>,
    /// What the engine's swap counts.
    pub swap: Option<SwapCounts>,
    /// Waits for the engine's locks.
    pub locks: Option<LockRows>,
    /// Timed operations by how long they took: below 1, 10, 100, 1,000, 10,000, 100,000, 1,000,000 µs, and
    /// longer ones.
    pub wait_ranges: Option<BTreeMap<&'static str, [u64; RANGES]>>,
    /// What was not as it should be on this machine, in words.
    pub notes: Vec<String>,
    /// Of huge memory: document 001's figures.
    pub huge: Option<HugeRow>,
    /// Whether the workload needs swap.
    #[serde(skip)]
    pub swaps: bool,
    /// Whether the kernel read ahead, as far as the device says.
    #[serde(skip)]
    pub kernel_read_ahead: bool,
    /// Why there was no run, if the machine does not allow it.
    pub skipped: Option<String>,
    /// Why the run failed, if it did.
    pub error: Option<String>,
}

/// What the parent knows of a run besides its outcome.
pub struct Circumstances {
    /// Which of the repeats, from 1.
    pub run: u32,
    /// Threads that touched pages.
    pub threads: usize,
    /// Length of what they touched.
    pub file_bytes: u64,
    /// What its device was set to.
    pub read_ahead_kb: Option<u32>,
    /// Whether a memory cgroup bounded the run.
    pub limited: bool,
    /// Whether the files' contents are known.
    pub checked: bool,
    /// What was not as it should be.
    pub notes: Vec<String>,
}

impl Row {
    /// The row of one run.
    pub fn new(
        plan: &Plan,
        pattern: &Pattern,
        on: On,
        at: Circumstances,
        outcome: Outcome,
        stats: Option<EngineStats>,
    ) -> Self {
        let elapsed_s = outcome.elapsed_ns as f64 / 1e9;
        let rate = |count: u64| (elapsed_s > 0.0).then(|| count as f64 / elapsed_s);
        let done = outcome.done;
        let in_rounds = plan.workload.has_rounds();
        let usage = outcome.usage;
        let faults = pattern.has_faults(plan).then_some(done.accesses);
        // The time in which they happened: of pft that of the populations alone.
        let (wall_s, cpu_s) = match plan.workload {
            Workload::Pft => (
                Some(done.populate_ns as f64 / 1e9),
                Some(done.populate_cpu_ns as f64 / 1e9),
            ),
            // What its processes used, which are not the child itself.
            Workload::Hugetlb => (
                Some(match done.populate_ns {
                    0 => elapsed_s,
                    ns => ns as f64 / 1e9,
                }),
                Some(done.populate_cpu_ns as f64 / 1e9),
            ),
            _ => (
                Some(elapsed_s),
                usage.map(|usage| usage.cpu_us as f64 / 1e6),
            ),
        };
        let swap = stats.map(|stats| stats.swap);
        let swapped = usage.filter(|_| plan.workload.swaps() && on.is_kernel());
        let swapped = swapped.and_then(|usage| usage.swapped_out).unwrap_or(0);
        let above = |peak: Option<u64>, budget: u64| Some(peak?.saturating_sub(budget));
        let own_peak = usage.and_then(|usage| usage.peak_rss);
        let over_budget = [
            above(outcome.peak_bytes, plan.budgets(on)),
            above(own_peak, plan.memory),
        ];
        let over_budget = over_budget.into_iter().flatten().max();
        let over_budget = over_budget.filter(|_| plan.workload.swaps() && !on.has_no_memory());
        let major = match on.is_kernel() {
            true => usage.map(|usage| usage.major_faults),
            false => stats.map(|stats| stats.major_faults),
        };
        let major = major.or(on.has_no_memory().then_some(done.accesses));
        let hit_rate = |major: u64| 1.0 - major as f64 / done.accesses.max(1) as f64;
        let faults_per = |time: Option<f64>| {
            let time = time.filter(|time| *time > 0.0)?;
            Some(faults? as f64 / time)
        };
        Self {
            workload: plan.workload.name(),
            pattern: pattern.name.clone(),
            on,
            run: at.run,
            threads: at.threads,
            seed: plan.seed,
            file_bytes: at.file_bytes,
            memory_bytes: plan.memory,
            read_ahead_kb: at.read_ahead_kb,
            limited: at.limited,
            gave_up: outcome.gave_up,
            checked: at.checked,
            accesses: done.accesses,
            elapsed_s,
            accesses_per_s: rate(done.accesses),
            rounds: in_rounds.then_some(done.rounds),
            rounds_per_s: rate(done.rounds).filter(|_| in_rounds),
            min_rounds: in_rounds.then_some(done.min_rounds),
            faults,
            faults_per_s: faults_per(wall_s),
            faults_per_cpu: faults_per(cpu_s),
            maps_per_s: rate(done.maps).filter(|_| plan.workload.has_maps()),
            longest_waits: LongestWaits::of(done.longest_ns),
            bytes_read: usage.and_then(|usage| usage.bytes_read),
            bytes_written: usage
                .and_then(|usage| usage.bytes_written)
                .map(|bytes| bytes + swapped),
            hit_rate: major
                .map(hit_rate)
                .filter(|_| plan.workload == Workload::Anon),
            lru_hit_rate: None,
            cpu_s: match plan.workload {
                Workload::Hugetlb => cpu_s,
                _ => usage.map(|usage| usage.cpu_us as f64 / 1e6),
            },
            peak_bytes: outcome.peak_bytes,
            over_budget_bytes: over_budget,
            peak_rss_bytes: own_peak,
            child_peak_rss_bytes: None,
            major_faults: usage.map(|usage| usage.major_faults),
            minor_faults: match plan.workload {
                Workload::Hugetlb => Some(done.huge.minor_faults),
                _ => usage.map(|usage| usage.minor_faults),
            },
            retry_mmap_drop: stats.map(|s| s.retry_mmap_drop + s.swap.retry_mmap_drop),
            retry_io_miss: stats.map(|s| s.retry_io_miss + s.swap.retry_io_miss),
            readahead_pages: stats.map(|stats| stats.readahead_pages),
            readahead_used: stats.map(|stats| stats.readahead_used),
            swap: swap.filter(|_| plan.workload.swaps()),
            locks: stats.as_ref().map(LockRows::from),
            wait_ranges: waits::by_name(&done.waits),
            notes: at.notes,
            huge: (plan.workload == Workload::Hugetlb).then(|| {
                HugeRow::of(
                    done.huge,
                    match on {
                        On::Soft(_) => "soft",
                        _ => "hugetlb",
                    },
                )
            }),
            swaps: plan.workload.swaps(),
            kernel_read_ahead: on.reads_ahead() && plan.workload.reads_files(),
            skipped: None,
            error: outcome.error,
        }
    }

    /// The row of a run that the machine does not allow.
    pub fn skipped(plan: &Plan, pattern: &Pattern, on: On, at: Circumstances, why: String) -> Self {
        let mut row = Self::new(plan, pattern, on, at, Outcome::default(), None);
        row.skipped = Some(why);
        // Nothing was done, which is no speed.
        (row.accesses_per_s, row.rounds_per_s, row.over_budget_bytes) = (None, None, None);
        row
    }

    /// The figure that engines are compared by: mappings, rounds, faults or touched pages a second. The
    /// unit says which.
    pub fn speed(&self) -> (f64, &'static str) {
        let touches = (self.accesses_per_s, "pages/s");
        let (speed, unit) = match (self.rounds_per_s, self.faults_per_s, self.maps_per_s) {
            (Some(_), _, _) => (self.rounds_per_s, "rounds/s"),
            (None, Some(_), Some(_)) => (self.maps_per_s, "maps/s"),
            (None, Some(_), None) => (self.faults_per_s, "faults/s"),
            _ => touches,
        };
        (speed.unwrap_or(0.0), unit)
    }
}
