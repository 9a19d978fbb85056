//! The lab: the documents' workloads, on any engine, side by side.
//!
//! ```text
//!   plan ─► files ─► for each pattern, repeat, engine:
//!                      drop caches ─► cgroup ─► child ─► supervise ─► row
//!                                                 │ reads its job from stdin, once it is in the cgroup
//!                                                 ▼
//!                                     child ─► work::{sparse,random,scan,thrash} over reader, engine
//!                                                 │
//!                      row ◄─ shared counters ◄───┘
//! ```
//! `plan` holds the arguments, `row` the figures, `table` the picture at the end.

mod caches;
pub mod cgroup_path;
pub mod child;
pub mod command;
mod counters;
pub mod engine;
pub mod files;
mod fill;
pub mod group;
mod job;
mod on_softfault;
pub mod plan;
mod reader;
pub mod row;
mod stats;
pub mod supervise;
pub mod table;
mod usage;
mod work;

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::size;
use counters::Counters;
use engine::On;
use files::{Contents, LabFile};
use group::{Group, Groups};
use indicatif::{ProgressBar, ProgressStyle};
use job::{Job, JobFile, Work};
use plan::{FileFrom, Files, Pattern, Plan};
use row::{Circumstances, Row};
use std::os::fd::AsRawFd;
use std::time::Duration;
use supervise::Done;

/// Which run of a plan it is.
#[derive(Clone, Copy)]
struct Place {
    /// From 1.
    number: usize,
    /// Of so many.
    total: usize,
    /// Which of its row's repeats, from 1.
    run: u32,
}

/// What all runs share. All fields immutable.
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

    /// Runs a plan and returns a row for each single run. A run that failed is a row with an error; what
    /// ends the whole is an error here, and leaves nothing behind.
    pub fn run(&self, plan: &Plan) -> Result<Vec<Row>, Error> {
        let Plan { dir, seed, .. } = plan;
        let shared = match &plan.file {
            FileFrom::Path(path) => {
                let file = files::open(path)?;
                self.probe(plan)?;
                vec![file]
            }
            FileFrom::Made(bytes) => {
                self.probe(plan)?;
                match plan.workload.has_rounds() {
                    true => Vec::new(),
                    false => files::make_data(dir, 1, *bytes, *seed, self.interrupt)?,
                }
            }
        };
        self.run_over(plan, &shared)
    }

    /// Fails if an engine cannot be used at all with this budget, before files are made for it.
    pub fn probe(&self, plan: &Plan) -> Result<(), Error> {
        for &on in &plan.on {
            let counters = Counters::create(0).map_err(Error::failed)?;
            let job = job(plan, Work::Probe, on, &counters, &[]);
            let time = Duration::from_secs(60);
            let outcome = supervise::run(&job, &counters, None, time, self.interrupt, &|| ())?;
            if let Some(error) = outcome.error {
                return Err(Error::failed(format_args!("{}: {error}", on.name())));
            }
        }
        Ok(())
    }

    /// Runs a plan over a file that is there already; a thrash makes its own.
    pub fn run_over(&self, plan: &Plan, shared: &[LabFile]) -> Result<Vec<Row>, Error> {
        let total = plan.patterns.len() * plan.on.len() * plan.repeat as usize;
        let mut rows = Vec::with_capacity(total);
        for pattern in &plan.patterns {
            let own = self.thrash_files(plan, pattern)?;
            let files = own.as_deref().unwrap_or(shared);
            // Repeats outside, engines inside: a slow drift of the machine meets all engines alike.
            for run in 1..=plan.repeat {
                for &on in &plan.on {
                    let place = Place {
                        number: rows.len() + 1,
                        total,
                        run,
                    };
                    rows.push(self.row(plan, pattern, on, place, files)?);
                }
            }
        }
        Ok(rows)
    }

    /// A thrash's files, a pattern's own.
    fn thrash_files(&self, plan: &Plan, pattern: &Pattern) -> Result<Option<Vec<LabFile>>, Error> {
        let (Some(kind), FileFrom::Made(bytes)) = (pattern.files(), &plan.file) else {
            return Ok(None);
        };
        let Plan {
            dir, threads, seed, ..
        } = plan;
        match kind {
            Files::Data => files::make_data(dir, *threads, *bytes, *seed, self.interrupt),
            Files::Holes => files::make_holes(dir, *threads, *bytes),
        }
        .map(Some)
    }

    fn row(
        &self,
        plan: &Plan,
        pattern: &Pattern,
        on: On,
        place: Place,
        files: &[LabFile],
    ) -> Result<Row, Error> {
        let mut notes = Vec::new();
        notes.extend(caches::drop_caches(files, plan.drop_system_caches));
        if on == On::Pread && !reads_directly(&files[0]) {
            notes.push("O_DIRECT is not to be had here: read through the page cache".into());
        }
        let group = self.group(on.limit(plan.memory), place, &mut notes);
        let limited = group.is_some() && on.limit(plan.memory).is_some();
        let pages = files[0].pages();
        let counters = Counters::create(plan.threads).map_err(Error::failed)?;
        let job = job(plan, pattern.work(plan, pages), on, &counters, files);
        let bar = run_bar(plan, pattern, on, place);
        let outcome = supervise::run(
            &job,
            &counters,
            group.as_ref(),
            plan.give_up,
            self.interrupt,
            &|| show_progress(&bar, &counters),
        )?;
        bar.finish_and_clear();
        let at = Circumstances {
            run: place.run,
            file_bytes: files.iter().map(|file| file.bytes).sum(),
            limited,
            checked: files.iter().all(|file| file.contents != Contents::Unknown),
            notes,
        };
        Ok(Row::new(plan, pattern, on, at, outcome, counters.stats()))
    }

    /// The cgroup for one run, with its limit set; notes why there is none.
    fn group(&self, limit: Option<u64>, place: Place, notes: &mut Vec<String>) -> Option<Group> {
        let groups = match &self.groups {
            Ok(groups) => groups,
            Err(why) => {
                notes.push(why.clone());
                return None;
            }
        };
        let made = groups
            .create(&place.number.to_string())
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

fn job(plan: &Plan, work: Work, on: On, counters: &Counters, files: &[LabFile]) -> Job {
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
        threads: match work {
            Work::Probe => 0,
            _ => plan.threads,
        },
        seconds: plan.seconds,
        seed: plan.seed,
        files: files.iter().map(file).collect(),
    }
}

fn reads_directly(file: &LabFile) -> bool {
    let path = format!("/proc/self/fd/{}", file.file.as_raw_fd());
    matches!(reader::open_direct(&path), Ok(Some(_)))
}

fn run_bar(plan: &Plan, pattern: &Pattern, on: On, place: Place) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {spinner} {elapsed} {msg}");
    let (workload, on) = (plan.workload.name(), on.name());
    let Place { number, total, .. } = place;
    let prefix = match workload == pattern.name {
        true => format!("[{number}/{total}] {workload} on {on}"),
        false => format!("[{number}/{total}] {workload} {} on {on}", pattern.name),
    };
    ProgressBar::new_spinner()
        .with_style(style.expect("a well-formed template"))
        .with_prefix(prefix)
}

fn show_progress(bar: &ProgressBar, counters: &Counters) {
    let done = Done::of(counters);
    bar.tick();
    bar.set_message(match (counters.started(), done.rounds) {
        (None, _) => "preparing".into(),
        (_, 0) => format!(
            "{} pages ({})",
            done.accesses,
            size::show(done.accesses * fill::PAGE)
        ),
        (_, rounds) => format!("{rounds} rounds"),
    });
}
