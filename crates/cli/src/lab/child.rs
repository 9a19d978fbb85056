//! The child's side of a run: reads its job, builds the engine, works, and leaves all it has to tell in
//! the shared counters.

use super::counters::{Blame, Counters};
use super::engine::build::build;
use super::full_swap::{self, Tell};
use super::job::{Job, Work};
use super::work::{
    Bench, anon, append, hugetlb, loops, many, orders, pft, random, scan, snapshot, sparse, spf,
    storm, swap_retry, thrash, warm_start, write,
};
use std::io::Read;
use std::process::ExitCode;

/// Runs the job on stdin. It comes only once the parent has put this process into its cgroup.
pub fn main() -> ExitCode {
    let mut text = String::new();
    let job: Job = match std::io::stdin().read_to_string(&mut text) {
        Ok(_) => match serde_json::from_str(&text) {
            Ok(job) => job,
            Err(e) => return refuse(&format!("not a job: {e}")),
        },
        Err(e) => return refuse(&format!("no job: {e}")),
    };
    // SAFETY: prctl and getppid with no pointers.
    let orphan = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::getppid() as u32 != job.parent
    };
    if orphan {
        return refuse("the parent is gone");
    }
    // SAFETY: the parent made the descriptor for this many threads and nothing here owns it yet.
    let counters: &Counters = match unsafe { Counters::inherited(job.counters, job.all_threads()) }
    {
        // Until the end of the process, which may be a signal's.
        Ok(counters) => Box::leak(Box::new(counters)),
        Err(e) => return refuse(&format!("no counters: {e}")),
    };
    let swap = full_swap::watch(job.swap.as_ref(), Tell::Counters(counters));
    let explain = |(blame, text)| match swap {
        Some(swap) => (blame, swap.explain(text)),
        None => (blame, text),
    };
    match work(&job, counters).map_err(explain) {
        Ok(()) => ExitCode::SUCCESS,
        Err((blame, text)) => {
            counters.fail(blame, &text);
            ExitCode::FAILURE
        }
    }
}

fn work(job: &Job, counters: &Counters) -> Result<(), (Blame, String)> {
    let engine =
        build(job.on, job.memory, job.swap.as_ref()).map_err(|text| (Blame::Input, text))?;
    let bench = Bench {
        job,
        counters,
        engine: engine.as_deref(),
    };
    match job.work {
        Work::Probe => Ok(()),
        Work::Sparse { order, accesses } => sparse::run(&bench, order, accesses),
        Work::Random => random::run(&bench),
        Work::Many { present } => many::run(&bench, present),
        Work::Orders(family) => orders::run(&bench, family),
        Work::Scan(pass) => scan::run(&bench, pass),
        Work::Write { how, flush_every } => write::run(&bench, how, flush_every),
        Work::Append { flush_every } => append::run(&bench, flush_every),
        Work::Thrash => thrash::run(&bench),
        Work::WarmStart { rounds } => warm_start::run(&bench, rounds),
        Work::Pft { shared, bytes } => pft::run(&bench, shared, bytes),
        Work::Spf { bytes } => spf::run(&bench, bytes),
        Work::Loops {
            verb,
            contended,
            bytes,
        } => loops::run(&bench, verb, contended, bytes),
        Work::Storm => storm::run(&bench),
        Work::Anon(memory) => anon::run(&bench, memory),
        Work::SwapRetry { memory, rounds } => swap_retry::run(&bench, memory, rounds),
        Work::Hugetlb { bytes, start } => hugetlb::run(&bench, bytes, start),
        Work::Snapshot(memory) => snapshot::run(&bench, memory),
    }
    .map_err(|text| (Blame::Run, text))
}

fn refuse(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::from(2)
}
