//! The row of one run.

use super::plan::Planned;
use super::pool::Took;
use crate::results::row::{Huge, Lock, LongestWaits, Row, Simulated, SimulatedHuge, Swap, WAITED};
use softfault_sim::{LockRow, MmuKind, Mode, Outcome, Trouble, Workload};

/// Workloads whose speed is told in rounds.
const IN_ROUNDS: [&str; 4] = ["thrash", "warm-start", "swap-retry", "loops"];

/// The row of a run.
pub fn row(planned: &Planned, outcome: &Result<Outcome, Trouble>, took: Took) -> Row {
    let job = &planned.job;
    let engine = match job.mmu {
        MmuKind::Soft => "soft",
        MmuKind::Uffd => "softfault",
    };
    let policies = job.policies.to_string();
    let on = match policies.is_empty() {
        true => engine.into(),
        false => format!("{engine}:{policies}"),
    };
    let verb = match (job.workload, job.contended) {
        (Workload::Loops, false) => format!("{}, ", job.verb),
        (Workload::Loops, true) => format!("{} contended, ", job.verb),
        _ => String::new(),
    };
    let shared = if job.shared { ", shared" } else { "" };
    let mut row = Row {
        workload: job.workload.name().into(),
        pattern: format!("{verb}{} cores{shared}", job.cores),
        on,
        threads: job.threads as u64,
        run: Some(planned.number as u32 + 1),
        seed: Some(job.seed),
        memory_bytes: job.memory,
        file_bytes: job.region.max(job.file),
        ..Row::default()
    };
    let mut simulated = Simulated {
        policy: planned.policy.clone(),
        topology: job.topology.name.clone(),
        varied_percent: planned.varied,
        changed_cost: planned.changed.map(|(name, factor)| (name.into(), factor)),
        cores: job.cores,
        mmu: job.mmu.name().into(),
        shared: job.shared,
        wall_s: took.wall.as_secs_f64(),
        host_cpu_s: took.cpu.as_secs_f64(),
        ..Simulated::default()
    };
    match outcome {
        Ok(outcome) => fill(&mut row, &mut simulated, outcome),
        Err(trouble) => row.error = Some(trouble.to_string()),
    }
    row.simulated = Some(simulated);
    row
}

fn fill(row: &mut Row, simulated: &mut Simulated, outcome: &Outcome) {
    let in_rounds = IN_ROUNDS.contains(&&row.workload[..]);
    row.faults = Some(outcome.faults);
    row.elapsed_s = outcome.elapsed_ns as f64 / 1e9;
    row.cpu_s = Some(outcome.cpu_ns as f64 / 1e9);
    // The faults of loops are of all that they do, and their times those of the verb alone.
    let has_rate = row.workload != "loops";
    row.faults_per_s = has_rate.then(|| outcome.faults_per_s());
    row.faults_per_cpu = has_rate.then(|| outcome.faults_per_cpu());
    row.accesses = outcome.touches;
    row.accesses_per_s = Some(outcome.touches_per_s());
    row.rounds = Some(outcome.rounds);
    row.rounds_per_s = in_rounds.then(|| outcome.rounds_per_s());
    row.retry_mmap_drop = Some(outcome.retry_mmap_drop);
    row.retry_io_miss = Some(outcome.retry_io_miss);
    row.bytes_read = Some(outcome.bytes_read);
    row.swap = outcome.swap.map(|swap| Swap {
        pages_out: swap.pages_out,
        pages_in: swap.pages_in,
        clean_drops: swap.clean_drops,
        rescued: swap.rescued,
        full: swap.full,
        ..Swap::default()
    });
    row.huge = outcome.huge.map(|huge| {
        Huge::Simulated(SimulatedHuge {
            waits: huge.waits,
            wait_total_ms: huge.wait_ns as f64 / 1e6,
            mutex_locked: huge.locked,
            mutex_waits: huge.mutex_waits,
            mutex_wait_total_ms: huge.mutex_wait_ns as f64 / 1e6,
            longest_wait_us: huge.longest_ns as f64 / 1e3,
            filled: huge.filled,
            shared: huge.shared,
            unshared: huge.unshared,
            table_bytes: huge.table_bytes,
        })
    });
    row.locks = Some(outcome.locks.iter().map(lock).collect());
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
    row.longest_waits = LongestWaits::of(all);
    let report = &outcome.report;
    simulated.failed_accesses = outcome.failed_touches;
    simulated.miss_drop_percent = outcome.miss_drop_percent();
    simulated.memory_waits = outcome.memory_waits;
    simulated.read_errors = outcome.read_errors;
    simulated.evicted = outcome.evicted;
    simulated.vma_slots = outcome.vma_slots.made.into();
    simulated.vma_reuses = outcome.vma_slots.reuses;
    simulated.vma_slots_waiting = outcome.vma_slots.waiting.into();
    simulated.virtual_s = report.elapsed_ns as f64 / 1e9;
    simulated.operations = report.operations;
    simulated.switches = report.switches;
    simulated.digest = format!("{:016x}", report.digest);
    if simulated.wall_s > 0.0 {
        simulated.operations_per_wall_s = report.operations as f64 / simulated.wall_s;
    }
}

/// The further fields of a simulation's row.
pub fn simulated(row: &Row) -> &Simulated {
    row.simulated.as_ref().expect("`row` has filled it in")
}

/// Its name, for a message.
pub fn describe(row: &Row) -> String {
    let Simulated {
        topology, policy, ..
    } = simulated(row);
    format!(
        "{} on {} of {topology}, {} threads, {policy}, seed {}",
        row.workload,
        row.pattern,
        row.threads,
        row.seed.unwrap_or_default()
    )
}

/// A lock's name in the JSON, and its waits. VMA locks count their writers'
/// waits alone, and are called as in the lab.
fn lock(row: &LockRow) -> (String, Lock) {
    let name = match (row.name, row.mode) {
        ("vma_lock", Mode::Write) => "vma_lock".to_owned(),
        (name, mode) => format!("{}_{mode}", name.replace(' ', "_")),
    };
    let waits = &row.waits;
    let lock = Lock::of(waits.count, waits.total_ns, waits.max_ns, waits.ranges);
    (name, lock)
}
