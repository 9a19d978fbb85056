//! Sizes: the defaults of each workload, and the sizes that suit it.

use super::{anon, hugetlb, loops, memory, pft, spf, storm, swap_retry, thrash, warm_start};
use crate::job::{Job, MmuKind, PAGE, Verb, Workload};
use crate::outcome::Trouble;
use softfault_engine::policy::Policies;
use sync::topology::Topology;

impl Job {
    /// A run of `workload` on so many cores, with the sizes that it has by
    /// default: those of its document, or smaller where a simulation of that
    /// would take hours; the module of each workload says which.
    pub fn new(workload: Workload, topology: Topology, cores: usize, threads: usize) -> Self {
        let mut job = Self {
            workload,
            policies: Policies::default(),
            topology,
            cores,
            threads,
            seed: 1,
            mmu: MmuKind::Soft,
            shared: false,
            verb: Verb::Map,
            contended: false,
            memory: 0,
            region: 0,
            forks: true,
            swap: 0,
            theta: 0.0,
            file: 0,
            populated: true,
            together: false,
            holes: false,
            files: 0,
            mappers: 1,
            ra_pages: 32,
            seconds: 0.01,
            io_errors_per_million: 0,
            patience: 20.0,
            trace: false,
        };
        set_sizes(&mut job);
        job
    }

    /// Whether the run can be made.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        let cpus = self.topology.cpus();
        let wrong = if self.cores == 0 || self.threads == 0 {
            "a run needs a core and a thread".to_owned()
        } else if self.cores > cpus {
            let name = &self.topology.name;
            format!("{} cores: `{name}` has {cpus}", self.cores)
        } else if !(self.seconds > 0.0 && self.seconds < 1e6) {
            format!("{} virtual seconds", self.seconds)
        } else if !(self.patience > 0.0 && self.patience < 1e6) {
            format!("a starvation timeout of {} virtual seconds", self.patience)
        } else if !(0.0..1.0).contains(&self.theta) {
            format!("a theta of {}: from 0, and below 1", self.theta)
        } else if self.io_errors_per_million > 1_000_000 {
            format!("{} bad pages of a million", self.io_errors_per_million)
        } else {
            return check(self);
        };
        Err(Trouble::Job(wrong))
    }
}

/// Fills in the sizes of a job that its workload has by default.
fn set_sizes(job: &mut Job) {
    match job.workload {
        Workload::Pft => pft::set_sizes(job),
        Workload::Thrash => thrash::set_sizes(job),
        Workload::WarmStart => warm_start::set_sizes(job),
        Workload::Spf => spf::set_sizes(job),
        Workload::Loops => loops::set_sizes(job),
        Workload::Storm => storm::set_sizes(job),
        Workload::SwapRetry => swap_retry::set_sizes(job),
        Workload::Anon => anon::set_sizes(job),
        Workload::Hugetlb => hugetlb::set_sizes(job),
    }
}

/// Whether the sizes of a job suit its workload.
fn check(job: &Job) -> Result<(), Trouble> {
    let pages = |what: &str, bytes: u64| match bytes > 0 && bytes.is_multiple_of(PAGE) {
        true => Ok(()),
        false => Err(Trouble::Job(format!(
            "a {what} of {bytes} bytes: no whole pages"
        ))),
    };
    match job.workload {
        Workload::Pft | Workload::Spf | Workload::Loops => pages("region", job.region),
        Workload::SwapRetry | Workload::Anon => {
            pages("region", job.region).and_then(|()| memory::check(job))
        }
        Workload::Thrash => pages("file", job.file),
        Workload::Storm => pages("file", job.file).and_then(|()| storm::check(job)),
        Workload::Hugetlb => hugetlb::check(job),
        Workload::WarmStart if job.files == 0 => Err(Trouble::Job("no files".to_owned())),
        Workload::WarmStart => Ok(()),
    }
}

/// The sizes of the files that a job's threads use.
pub fn files(job: &Job) -> Vec<u64> {
    match job.workload {
        Workload::Pft
        | Workload::Spf
        | Workload::Loops
        | Workload::SwapRetry
        | Workload::Anon
        | Workload::Hugetlb => Vec::new(),
        Workload::Thrash => thrash::files(job),
        Workload::WarmStart => warm_start::files(job),
        Workload::Storm => storm::files(job),
    }
}
