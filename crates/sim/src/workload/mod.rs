//! The workloads, as the threads of a simulated machine do them: each prepares,
//! then hands a body for every thread to `gang::run`.

mod anon;
mod gang;
mod hugetlb;
mod loops;
mod meeting;
mod memory;
mod pft;
mod sizes;
mod spf;
mod storm;
mod swap_retry;
mod tally;
mod thrash;
mod touch;
mod warm_start;
mod zipf;

pub use warm_start::mixed_sizes;
pub use zipf::Zipf;

use crate::job::{Job, Progress, Workload};
use crate::outcome::{HugeCounts, LockRow, Mode, Outcome, SwapCounts, Trouble};
use crate::rig::Rig;
use crate::uffd::KernelWaits;
use crate::world::{self, Config, Report};
use gang::{Measured, Task};
use sizes::files;
use softfault_engine::huge::HugeSnapshot;
use softfault_engine::lock::WaitSnapshot;
use softfault_engine::mm::VmaSlots;
use softfault_engine::swap::SwapStats;
use std::cell::Cell;
use std::ops::ControlFlow;

/// Runs a job.
pub fn run(job: &Job) -> Result<Outcome, Trouble> {
    run_watched(job, &|_| ControlFlow::Continue(()))
}

/// Runs a job, and tells `watch` a few hundred times how far it is. `watch` may
/// end it: the run then ends with [`Trouble::Interrupted`]. It must not use the
/// simulated machine.
pub fn run_watched(
    job: &Job,
    watch: &dyn Fn(Progress) -> ControlFlow<()>,
) -> Result<Outcome, Trouble> {
    job.check()?;
    world::reserve().map_err(|e| {
        let why = "the system refuses 16 TiB of address space (is it limited, by ulimit -v?)";
        Trouble::Job(format!("{why}: {e}"))
    })?;
    let config = Config {
        topology: job.topology.clone(),
        cores: job.cores,
        seed: job.seed,
        trace: job.trace,
        patience_ns: (job.patience * 1e9) as u64,
    };
    let ran = world::run(config, || measure(job, watch));
    let (outcome, report) = ran.map_err(|stuck| Trouble::Stuck(stuck.to_string()))?;
    outcome.map(|outcome| Outcome { report, ..outcome })
}

/// The threads; the state that they need and do not make themselves is there.
fn tasks(job: &Job, rig: &Rig) -> Result<Vec<Task>, String> {
    Ok(match job.workload {
        Workload::Pft => pft::tasks(job),
        Workload::Thrash => thrash::tasks(job),
        Workload::WarmStart => warm_start::tasks(job),
        Workload::Spf => spf::tasks(job),
        Workload::Loops => loops::tasks(job),
        Workload::Storm => storm::tasks(job),
        Workload::SwapRetry => swap_retry::tasks(job, memory::Memory::populated(job, rig)?),
        Workload::Anon => anon::tasks(job, memory::Memory::populated(job, rig)?),
        Workload::Hugetlb => hugetlb::tasks(job, rig)?,
    })
}

/// The counts at one moment.
#[derive(Clone, Copy, Default)]
struct Counts {
    served: u64,
    retry_mmap_drop: u64,
    retry_io_miss: u64,
    memory_waits: u64,
    bytes_read: u64,
    read_errors: u64,
    evicted: u64,
    swap: Option<SwapCounts>,
    huge: HugeSnapshot,
    mmap_read: WaitSnapshot,
    mmap_write: WaitSnapshot,
    vma_write: WaitSnapshot,
    kernel: Option<KernelWaits>,
}

impl Counts {
    fn of(rig: &Rig) -> Self {
        let stats = &rig.node.stats;
        let locks = rig.space.lock_stats();
        let swap = rig.node.swap.as_ref().map(|swap| &swap.stats);
        let of_swap = |count: fn(&SwapStats) -> u64| swap.map_or(0, count);
        Self {
            served: stats.minor_faults.get()
                + stats.major_faults.get()
                + stats.spurious.get()
                + stats.anonymous_faults.get(),
            retry_mmap_drop: stats.retry_mmap_drop.get()
                + of_swap(|swap| swap.retry_mmap_drop.get()),
            retry_io_miss: stats.retry_io_miss.get() + of_swap(|swap| swap.retry_io_miss.get()),
            memory_waits: stats.memory_waits.get(),
            bytes_read: stats.bytes_read.get(),
            read_errors: stats.read_errors.get(),
            evicted: stats.evicted.get(),
            swap: swap.map(|swap| SwapCounts {
                pages_out: swap.pages_out.get(),
                pages_in: swap.pages_in.get(),
                clean_drops: swap.clean_drops.get(),
                rescued: swap.rescued.get(),
                full: swap.full.get(),
            }),
            huge: rig
                .huge
                .as_ref()
                .map_or(HugeSnapshot::default(), |huge| huge.stats()),
            mmap_read: locks.mmap_read,
            mmap_write: locks.mmap_write,
            vma_write: locks.vma_write,
            kernel: rig.kernel_waits(),
        }
    }
}

/// The whole run, on the machine.
fn measure(job: &Job, watch: &dyn Fn(Progress) -> ControlFlow<()>) -> Result<Outcome, Trouble> {
    let rig = Rig::new(job, &files(job)).map_err(Trouble::Job)?;
    let tasks = tasks(job, &rig).map_err(Trouble::Failed)?;
    let before = Cell::new(Counts::default());
    let measured = gang::run(job, &rig, tasks, watch, || before.set(Counts::of(&rig)))?;
    let mut before = before.get();
    let mut measured = measured;
    if let Some((at_ns, huge)) = rig.huge.as_ref().and_then(|huge| huge.marked()) {
        before.huge = huge;
        measured.elapsed_ns = measured.tally.ended_ns.saturating_sub(at_ns);
    }
    let mut outcome = outcome(job, measured, before, Counts::of(&rig));
    outcome.vma_slots = rig.vma_slots();
    rig.finish();
    Ok(outcome)
}

fn outcome(job: &Job, measured: Measured, before: Counts, after: Counts) -> Outcome {
    let Measured { tally, elapsed_ns } = measured;
    let (faults, elapsed_ns, cpu_ns) = match job.workload {
        Workload::Pft => {
            let populated = &tally.populated;
            (populated.pages, populated.ns, populated.cpu_ns)
        }
        Workload::Spf => (tally.touches, elapsed_ns, tally.cpu_ns),
        Workload::Loops => {
            let acted = &tally.populated;
            (after.served - before.served, acted.ns, acted.cpu_ns)
        }
        Workload::Hugetlb => (
            after.huge.faults - before.huge.faults,
            elapsed_ns,
            tally.cpu_ns,
        ),
        _ => (after.served - before.served, elapsed_ns, tally.cpu_ns),
    };
    let row = |name, mode, after: WaitSnapshot, before: WaitSnapshot| LockRow {
        name,
        mode,
        waits: since(after, before),
    };
    let (read, write) = (Mode::Read, Mode::Write);
    let mut locks = vec![
        row("mmap_lock", read, after.mmap_read, before.mmap_read),
        row("mmap_lock", write, after.mmap_write, before.mmap_write),
        row("vma_lock", write, after.vma_write, before.vma_write),
    ];
    if let (Some(after), Some(before)) = (after.kernel, before.kernel) {
        let (mmap, signal) = ("kernel mmap_lock", "kernel signal");
        locks.push(row(mmap, read, after.mmap_read, before.mmap_read));
        locks.push(row(mmap, write, after.mmap_write, before.mmap_write));
        locks.push(row(signal, write, after.signal, before.signal));
    }
    Outcome {
        faults,
        elapsed_ns,
        cpu_ns,
        rounds: tally.rounds,
        touches: tally.touches,
        failed_touches: tally.failed,
        retry_mmap_drop: after.retry_mmap_drop - before.retry_mmap_drop,
        retry_io_miss: after.retry_io_miss - before.retry_io_miss,
        memory_waits: after.memory_waits - before.memory_waits,
        bytes_read: after.bytes_read - before.bytes_read,
        read_errors: after.read_errors - before.read_errors,
        evicted: after.evicted - before.evicted,
        swap: after.swap.zip(before.swap).map(|(a, b)| SwapCounts {
            pages_out: a.pages_out - b.pages_out,
            pages_in: a.pages_in - b.pages_in,
            clean_drops: a.clean_drops - b.clean_drops,
            rescued: a.rescued - b.rescued,
            full: a.full - b.full,
        }),
        huge: (job.workload == Workload::Hugetlb).then(|| HugeCounts {
            waits: after.huge.waits - before.huge.waits,
            wait_ns: after.huge.wait_ns - before.huge.wait_ns,
            locked: after.huge.locked - before.huge.locked,
            mutex_waits: after.huge.mutex_waits - before.huge.mutex_waits,
            mutex_wait_ns: after.huge.mutex_wait_ns - before.huge.mutex_wait_ns,
            longest_ns: after.huge.longest_ns,
            filled: after.huge.filled - before.huge.filled,
            shared: after.huge.shared - before.huge.shared,
            unshared: after.huge.unshared - before.huge.unshared,
            table_bytes: tally.table_bytes,
        }),
        vma_slots: VmaSlots::default(),
        locks,
        longest: tally.longest,
        report: Report {
            elapsed_ns: 0,
            operations: 0,
            switches: 0,
            digest: 0,
            hot: Vec::new(),
            sleeps: Vec::new(),
            trace: None,
        },
    }
}

/// The counts since; the longest wait is of both.
fn since(after: WaitSnapshot, before: WaitSnapshot) -> WaitSnapshot {
    WaitSnapshot {
        count: after.count - before.count,
        total_ns: after.total_ns - before.total_ns,
        max_ns: after.max_ns,
        ranges: core::array::from_fn(|range| after.ranges[range] - before.ranges[range]),
    }
}
