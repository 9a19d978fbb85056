//! The row of one run: the child's counts, the parent's measurements, and the circumstances.

use super::plan::{Pattern, Plan, Workload};
use super::stats::EngineStats;
use super::supervise::Outcome;
use crate::results::on::On;
use crate::results::row::{LongestWaits, Row, by_name};

/// The parent's knowledge of a run besides its outcome.
pub struct Circumstances {
    /// Which of the repeats, from 1.
    pub run: u32,
    /// Threads that touched pages.
    pub threads: usize,
    /// Length of the touched memory.
    pub file_bytes: u64,
    /// The setting of its device.
    pub read_ahead_kb: Option<u32>,
    /// vm.page-cluster, of workloads that swap.
    pub page_cluster: Option<u32>,
    /// Whether a memory cgroup bounded the run.
    pub limited: bool,
    /// Whether the files' contents are known.
    pub checked: bool,
    /// Problems of the run.
    pub notes: Vec<String>,
}

/// The row of one run.
pub fn row(
    plan: &Plan,
    pattern: &Pattern,
    on: On,
    at: Circumstances,
    outcome: Outcome,
    stats: Option<EngineStats>,
) -> Row {
    let elapsed_s = outcome.elapsed_ns as f64 / 1e9;
    let rate = |count: u64| (elapsed_s > 0.0).then(|| count as f64 / elapsed_s);
    let done = outcome.done;
    // Of loops only the verb is measured.
    let rounds_s = match plan.workload {
        Workload::Loops => done.populate_ns as f64 / 1e9,
        _ => elapsed_s,
    };
    let in_rounds = plan.workload.has_rounds();
    let usage = outcome.usage;
    let faults = pattern.has_faults(plan.workload).then_some(done.accesses);
    // The time in which they happened: of pft that of the populations alone.
    let (wall_s, cpu_s) = match plan.workload {
        Workload::Pft => (
            Some(done.populate_ns as f64 / 1e9),
            Some(done.populate_cpu_ns as f64 / 1e9),
        ),
        // The use of its processes, which are not the child itself.
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
    let faults_per = |time: Option<f64>| {
        let time = time.filter(|time| *time > 0.0)?;
        Some(faults? as f64 / time)
    };
    let made_of = match on {
        On::Soft(_) => "soft",
        _ => "hugetlb",
    };
    Row {
        workload: plan.workload.name().into(),
        pattern: pattern.name.clone(),
        on: on.to_string(),
        run: Some(at.run),
        threads: at.threads as u64,
        seed: Some(plan.seed),
        file_bytes: at.file_bytes,
        memory_bytes: plan.memory,
        writes: plan.workload.swaps().then_some(plan.writes),
        flush_every: plan.flush_every,
        touch: (plan.workload == Workload::Sparse).then_some(plan.touch),
        seconds: pattern.has_seconds(plan.timed).then_some(plan.seconds),
        read_ahead_kb: at.read_ahead_kb,
        page_cluster: at.page_cluster,
        limited: at.limited,
        gave_up: outcome.gave_up,
        checked: Some(at.checked),
        accesses: done.accesses,
        elapsed_s,
        accesses_per_s: rate(done.accesses),
        rounds: in_rounds.then_some(done.rounds),
        rounds_per_s: (in_rounds && rounds_s > 0.0).then(|| done.rounds as f64 / rounds_s),
        min_rounds: in_rounds.then_some(done.min_rounds),
        median_rounds: in_rounds.then_some(done.median_rounds),
        faults,
        faults_per_s: faults_per(wall_s),
        faults_per_cpu: faults_per(cpu_s),
        maps_per_s: rate(done.maps).filter(|_| plan.workload.has_maps()),
        longest_waits: LongestWaits::of(done.longest_ns),
        touch_p999_us: Some(done.touch_p999_ns as f64 / 1e3).filter(|us| *us > 0.0),
        bytes_read: usage.and_then(|usage| usage.bytes_read),
        bytes_written: usage
            .and_then(|usage| usage.bytes_written)
            .map(|bytes| bytes + swapped),
        hit_rate: major
            .map(|major| hit_rate(major, done.accesses))
            .filter(|_| plan.workload == Workload::Anon),
        cpu_s: match plan.workload {
            Workload::Hugetlb => cpu_s,
            _ => usage.map(|usage| usage.cpu_us as f64 / 1e6),
        },
        peak_bytes: outcome.peak_bytes,
        over_budget_bytes: over_budget,
        peak_rss_bytes: own_peak,
        major_faults: usage.map(|usage| usage.major_faults),
        minor_faults: match plan.workload {
            Workload::Hugetlb => Some(done.huge.minor_faults),
            _ => usage.map(|usage| usage.minor_faults),
        },
        retry_mmap_drop: stats.map(|s| s.retry_mmap_drop + s.swap.retry_mmap_drop),
        retry_io_miss: stats.map(|s| s.retry_io_miss + s.swap.retry_io_miss),
        readahead_pages: stats.map(|stats| stats.readahead_pages),
        readahead_used: stats.map(|stats| stats.readahead_used),
        swap: stats
            .map(|stats| stats.swap.told())
            .filter(|_| plan.workload.swaps()),
        locks: stats.map(|stats| stats.locks_by_name()),
        wait_ranges: by_name(&done.waits),
        notes: at.notes,
        huge: (plan.workload == Workload::Hugetlb).then(|| done.huge.told(made_of)),
        error: outcome.error,
        ..Row::default()
    }
}

/// The row of a run that the machine does not allow.
pub fn skipped(plan: &Plan, pattern: &Pattern, on: On, at: Circumstances, why: String) -> Row {
    let mut row = row(plan, pattern, on, at, Outcome::default(), None);
    row.skipped = Some(why);
    // Nothing was done, which is no speed.
    (row.accesses_per_s, row.rounds_per_s, row.over_budget_bytes) = (None, None, None);
    row
}

/// The share of the touches that took no major fault; not below 0, though there are more faults than touches where touches are
/// retried, or where the kernel evicts the program's own pages.
fn hit_rate(major: u64, touches: u64) -> f64 {
    (1.0 - major as f64 / touches.max(1) as f64).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_rate_is_never_below_zero() {
        assert_eq!(
            [hit_rate(1, 4), hit_rate(5, 4), hit_rate(0, 0)],
            [0.75, 0.0, 1.0]
        );
    }
}
