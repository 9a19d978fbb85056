//! The lab: the documents' workloads, on any engine, side by side.
//!
//! ```text
//!   plan ─► files ─► for each pattern, number of threads, repeat, engine:
//!         drop caches ─► cgroup ─► read-ahead ─► child ─► supervise ─► row
//!                                                 │ reads its job from stdin, once it is in the cgroup
//!                                                 ▼
//!                                     child ─► work::{sparse,random,...} over reader, engine
//!                                                 │
//!                      row ◄─ done ◄─ shared counters ◄───┘
//! ```
//! `plan` holds the arguments, `row` the figures, `table` the picture at the end. At the bottom are `fill`, the bytes of
//! files, and `job`, a child's orders; `engine` has the face of all engines, and `engine::build` chooses one.

mod block;
mod caches;
pub mod cgroup_path;
pub mod child;
pub mod command;
mod counters;
mod done;
mod engine;
mod family;
pub mod files;
mod fill;
mod full_swap;
pub mod group;
mod huge_counts;
mod huge_pool;
mod job;
mod memory;
pub mod plan;
pub mod profile;
mod progress;
mod provide;
pub mod read_ahead;
mod reader;
pub mod row;
mod stats;
pub mod supervise;
mod swap_file;
pub mod table;
mod usage;
mod work;

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::results::on::On;
use crate::results::row::Row;
use counters::Counters;
use files::LabFile;
use fill::{Contents, PAGE};
use group::{Group, Groups};
use job::{Job, JobFile, Swap, Work};
use memory::lru;
use plan::{FileFrom, Pattern, Plan, Workload};
use read_ahead::Device;
use row::Circumstances;
use softfault::Reads;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use swap_file::SwapFile;

/// Which run of a plan it is. All fields immutable.
#[derive(Clone, Copy)]
struct WhichRun<'a> {
    /// The variant of the workload.
    pattern: &'a Pattern,
    /// By how many threads.
    threads: usize,
    /// The engine.
    on: On,
    /// From 1.
    number: usize,
    /// Of so many.
    total: usize,
    /// Which of its row's repeats, from 1.
    run: u32,
}

/// The state that all runs share. All fields immutable.
pub struct Lab<'a> {
    interrupt: &'a Interrupt,
    /// Where cgroups are made, or why none are.
    groups: Result<Groups, String>,
}

impl<'a> Lab<'a> {
    /// A lab that a signal ends.
    pub fn new(interrupt: &'a Interrupt) -> Self {
        Self {
            interrupt,
            groups: Groups::find(),
        }
    }

    /// Whether runs have a memory cgroup of their own.
    pub fn has_cgroups(&self) -> bool {
        self.groups.is_ok()
    }

    /// Runs a plan and adds a row for each single run. A run that failed is a row with an error; a failure that
    /// ends the whole is an error here, and leaves nothing behind but the rows until then.
    pub fn run(&self, plan: &Plan, rows: &mut Vec<Row>) -> Result<(), Error> {
        // The caller's file is looked at before engines are tried, and those before files are made.
        let given = provide::given(plan)?;
        can_set_read_ahead(plan)?;
        self.probe(plan)?;
        let shared = provide::shared(plan, given, self.interrupt)?;
        self.run_over(plan, &shared, rows)
    }

    /// Fails if an engine cannot be used at all with this budget, before files are made for it.
    pub fn probe(&self, plan: &Plan) -> Result<(), Error> {
        for &on in &plan.on {
            let counters = Counters::create(0).map_err(Error::failed)?;
            let job = job(plan, Work::Probe, 0, on, &counters, &[]);
            let time = Duration::from_secs(60);
            let outcome = supervise::run(&job, &counters, None, time, self.interrupt, &|| ())?;
            if let Some(error) = outcome.error {
                return Err(Error::failed(format_args!("{on}: {error}")));
            }
        }
        Ok(())
    }

    /// Runs a plan over files that are there already; a thrash makes its own.
    pub fn run_over(
        &self,
        plan: &Plan,
        shared: &[LabFile],
        rows: &mut Vec<Row>,
    ) -> Result<(), Error> {
        let variants = plan.patterns.len() * plan.threads.len();
        let total = variants * plan.on.len() * plan.repeat as usize;
        let before = rows.len();
        for pattern in &plan.patterns {
            for &threads in &plan.threads {
                let own = provide::own(plan, pattern, threads, self.interrupt)?;
                let files = own.as_deref().unwrap_or(shared);
                // Repeats outside, engines inside: a slow drift of the machine meets all engines alike. Each
                // repeat begins with the next engine: so the state that one leaves behind meets another one each time.
                for run in 1..=plan.repeat {
                    for on in in_turn(&plan.on, run) {
                        let number = rows.len() - before + 1;
                        let which = WhichRun {
                            pattern,
                            threads,
                            on,
                            number,
                            total,
                            run,
                        };
                        rows.push(self.row(plan, which, files)?);
                    }
                }
            }
        }
        Ok(())
    }

    fn row(&self, plan: &Plan, which: WhichRun, files: &[LabFile]) -> Result<Row, Error> {
        let WhichRun {
            pattern,
            threads,
            on,
            ..
        } = which;
        let mut notes = Vec::new();
        notes.extend(caches::drop_caches(files, plan.drop_system_caches));
        notes.extend(through_page_cache(plan, on, files));
        let work = pattern.work(plan, files);
        if let Work::Hugetlb { bytes, .. } = work
            && !matches!(on, On::Soft(_))
            && let Some(why) = huge_pool::too_small(bytes)
        {
            notes.push(format!("not run: {why}"));
            let at = circumstances(plan, which, files, false, notes);
            return Ok(row::skipped(plan, pattern, on, at, why));
        }
        let limit = plan.limit(on);
        let (group, _swap) = match plan.swap().filter(|_| on.is_kernel()) {
            None => (self.group(limit, which, &mut notes), None),
            Some(swap) => match self.swapping_group(plan.memory, &swap, which) {
                Ok((group, swap)) => (Some(group), Some(swap)),
                Err(why) if plan.workload == Workload::Snapshot => {
                    notes.push(format!(
                        "without swap, in as much memory as it likes: {why}"
                    ));
                    (None, None)
                }
                Err(why) => {
                    notes.push(format!("not run: {why}"));
                    let at = circumstances(plan, which, files, false, notes);
                    return Ok(row::skipped(plan, pattern, on, at, why));
                }
            },
        };
        let limited = group.is_some() && limit.is_some();
        let device = device(plan, files);
        // Restored once the child has ended, however it and this function do.
        let _changed = match (on.read_ahead_kb(), &device) {
            (Some(kb), Some(device)) => Some(device.set(kb, self.interrupt)?),
            (Some(_), None) => return Err(no_device(plan)),
            (None, _) => None,
        };
        let read_ahead_kb = device.and_then(|device| device.read_ahead_kb());
        let counters = Counters::create(threads + work.bystanders()).map_err(Error::failed)?;
        let job = job(plan, work, threads, on, &counters, files);
        let bar = progress::bar(plan, which);
        let huge = plan.workload == Workload::Hugetlb && pattern.has_faults(plan.workload);
        let outcome = supervise::run(
            &job,
            &counters,
            group.as_ref(),
            plan.timeout,
            self.interrupt,
            &|| progress::show(&bar, &counters, threads, huge),
        )?;
        bar.finish_and_clear();
        let mut at = circumstances(plan, which, files, limited, notes);
        at.read_ahead_kb = read_ahead_kb;
        let mut row = row::row(plan, pattern, on, at, outcome, counters.stats());
        row.child_peak_rss_bytes = counters.child_peak();
        if let Work::Anon(memory) = work {
            let slots = &counters.slots()[..threads];
            let made = slots
                .iter()
                .map(|slot| slot.accesses.load(Ordering::Relaxed));
            let made: Vec<u64> = made.collect();
            let frames = plan.memory / PAGE;
            let accesses = memory.accesses(plan.seed);
            row.lru_hit_rate = lru::hit_rate(&accesses, memory.pages(), frames, &made);
        }
        Ok(row)
    }

    /// A cgroup with its limit, and swap for memory beyond it; or the reason why there is none.
    fn swapping_group(
        &self,
        memory: u64,
        swap: &Swap,
        which: WhichRun,
    ) -> Result<(Group, SwapFile), String> {
        let groups = self.groups.as_ref().map_err(String::clone)?;
        let group = groups.create(&which.number.to_string());
        let group = group.and_then(|group| group.limit_but_swap(memory).map(|()| group));
        let group = group.map_err(|e| format!("no memory cgroup that swaps: {e}"))?;
        let file = SwapFile::on(&swap.dir, swap.bytes)?;
        Ok((group, file))
    }

    /// The cgroup for one run, with its limit set; notes why there is none.
    fn group(&self, limit: Option<u64>, which: WhichRun, notes: &mut Vec<String>) -> Option<Group> {
        let groups = match &self.groups {
            Ok(groups) => groups,
            Err(why) => {
                notes.push(why.clone());
                return None;
            }
        };
        let made = groups
            .create(&which.number.to_string())
            .and_then(|group| match limit {
                Some(bytes) => group.limit(bytes).map(|()| group),
                None => Ok(group),
            });
        if limit.is_some() && !groups.has_high() {
            notes.push("cgroup v1: a limit only, no memory.high below it".into());
        }
        made.map_err(|e| notes.push(format!("no memory cgroup: {e}")))
            .ok()
    }
}

/// The engines in the order of a repeat, which are numbered from 1.
fn in_turn(on: &[On], run: u32) -> impl Iterator<Item = On> {
    let first = (run - 1) as usize % on.len();
    (on.iter().cycle()).skip(first).take(on.len()).copied()
}

/// The device that a plan's files lie on, or would.
fn device(plan: &Plan, files: &[LabFile]) -> Option<Device> {
    match files.first() {
        Some(file) => Device::of_file(&file.file),
        None => Device::of(place_of_files(plan)),
    }
}

/// Where a plan's files are, or are made.
fn place_of_files(plan: &Plan) -> &Path {
    match &plan.file {
        FileFrom::Path(path) => path,
        FileFrom::Made(_) => &plan.dir,
    }
}

/// Fails if a row needs a read-ahead that this process cannot set.
pub fn can_set_read_ahead(plan: &Plan) -> Result<(), Error> {
    if plan.on.iter().all(|on| on.read_ahead_kb().is_none()) {
        return Ok(());
    }
    let device = device(plan, &[]).ok_or_else(|| no_device(plan))?;
    device.may_set().map_err(Error::input)
}

fn no_device(plan: &Plan) -> Error {
    let place = place_of_files(plan).display();
    Error::input(format_args!(
        "cannot set a read-ahead: the device that {place} lies on is not known"
    ))
}

fn circumstances(
    plan: &Plan,
    which: WhichRun,
    files: &[LabFile],
    limited: bool,
    notes: Vec<String>,
) -> Circumstances {
    let touched = match plan.workload {
        Workload::Storm => &files[..1],
        _ => files,
    };
    let file_bytes = touched.iter().map(|file| file.bytes).sum();
    Circumstances {
        run: which.run,
        threads: which.threads,
        file_bytes: plan.anonymous_bytes(which.threads).unwrap_or(file_bytes),
        read_ahead_kb: device(plan, files).and_then(|device| device.read_ahead_kb()),
        page_cluster: plan
            .workload
            .swaps()
            .then(read_ahead::page_cluster)
            .flatten(),
        limited,
        checked: files.iter().all(|file| file.contents != Contents::Unknown),
        notes,
    }
}

fn job(
    plan: &Plan,
    work: Work,
    threads: usize,
    on: On,
    counters: &Counters,
    files: &[LabFile],
) -> Job {
    let file = |file: &LabFile| JobFile {
        fd: file.file.as_raw_fd(),
        bytes: file.bytes,
        contents: file.contents,
    };
    Job {
        parent: std::process::id(),
        counters: counters.fd(),
        work,
        on,
        memory: plan.memory,
        threads,
        seconds: plan.seconds,
        seed: plan.seed,
        files: files.iter().map(file).collect(),
        swap: plan.swap(),
    }
}

/// A note for a row that has memory besides its budget: the page cache.
fn through_page_cache(plan: &Plan, on: On, files: &[LabFile]) -> Option<String> {
    match on {
        On::Pread | On::PreadCached if !reads_directly(&files[0]) => {
            Some("O_DIRECT is not to be had here: read through the page cache".into())
        }
        On::Softfault(_, Some(Reads::Cached | Reads::Auto)) if plan.workload.reads_files() => {
            Some("in a memory cgroup of the budget and 32 MiB, page cache included".into())
        }
        _ => None,
    }
}

fn reads_directly(file: &LabFile) -> bool {
    let path = format!("/proc/self/fd/{}", file.file.as_raw_fd());
    matches!(block::open_direct(&path), Ok(Some(_)))
}
