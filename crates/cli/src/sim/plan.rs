//! Which runs a command means: cores by policies by seeds.

use super::arguments::RunArgs;
use super::refuse::refuse_strangers;
use crate::error::Error;
use crate::results::on::{self, twice};
use softfault_sim::topology::{Placement, Topology};
use softfault_sim::vary::{names, scaled, vary};
use softfault_sim::{Job, MmuKind, Policies, Workload, preset};

/// Where document 004 measured, up to the most CPUs of either machine.
const PFT_CORES: [usize; 11] = [1, 4, 7, 12, 21, 30, 48, 56, 79, 110, 128];
/// Threads of document 000.
const THRASH_THREADS: usize = 500;
/// Anonymous memory of workloads that swap, in budgets.
const SIZE: u64 = 4;
/// Cores of document 002's phone, and of workloads without a document.
const FEW_CORES: usize = 8;
/// Processors of document 001.
const HUGETLB_CORES: usize = 48;
/// More runs than anybody waits for.
const MOST_RUNS: usize = 10_000;
/// More memory, or files, than a machine here could note the pages of.
const MOST_BYTES: u64 = 1 << 40;
/// A page.
const MIN_BYTES: u64 = 4096;
const MOST_FILES: usize = 1_000_000;
/// More threads than stacks find room.
const MOST_THREADS: usize = 10_000;

/// How many times as high a cost is taken to be, to see what depends on it.
pub const FACTORS: [f64; 2] = [0.5, 2.0];

/// One run, and its name.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The run to simulate.
    pub job: Job,
    /// Its policies as they were asked for; of all defaults `default`.
    pub policy: String,
    /// Which of its seeds, from 0; the first has the topology as it is.
    pub number: usize,
    /// How far off its machine may be, in percent.
    pub varied: f64,
    /// The cost that its machine has changed, and how many times as high it is.
    pub changed: Option<(&'static str, f64)>,
}

/// A machine that all policies run on.
struct Machine {
    topology: Topology,
    seed: u64,
    number: usize,
    varied: f64,
    changed: Option<(&'static str, f64)>,
}

/// All runs, in the order of results: by cores, then policies, then seeds.
pub fn plan(workload: Workload, args: &RunArgs) -> Result<Vec<Planned>, Error> {
    refuse_strangers(workload, args)?;
    if let Some(twice) = twice(&args.cores) {
        return Err(Error::input(format_args!("--cores has {twice} twice")));
    }
    let topology = topology(workload, args)?;
    let policies = policies(workload, &args.policies)?;
    let cores = cores(workload, args, &topology);
    let seeds = args.seeds.unwrap_or(match workload {
        Workload::Pft | Workload::Spf | Workload::Loops => 3,
        _ => 1,
    });
    let runs = (cores.len() * policies.len()).saturating_mul(match args.sensitivity {
        true => changes(&topology, args).len() + 1,
        false => seeds,
    });
    if runs > MOST_RUNS {
        return Err(Error::input(format_args!(
            "{runs} runs: more than {MOST_RUNS}"
        )));
    }
    if args.trace.is_some() && runs > 1 {
        return Err(Error::input(format_args!(
            "--trace takes a single run, not {runs}: one of --cores, --policies and --seeds"
        )));
    }
    if args.sensitivity && (policies.len() < 2 || cores.len() > 1) {
        return Err(Error::input(
            "--sensitivity compares policies on one machine: name two of --policies or more, and one number of --cores",
        ));
    }
    let machines = match args.sensitivity {
        true => changed_machines(&topology, args),
        false => drawn_machines(&topology, args, seeds),
    };
    let mut planned = Vec::with_capacity(runs);
    for &cores in &cores {
        for (policy, policies) in &policies {
            for machine in &machines {
                let mut job = job(workload, args, machine.topology.clone(), cores)?;
                job.policies = *policies;
                job.seed = machine.seed;
                planned.push(Planned {
                    job,
                    policy: policy.clone(),
                    number: machine.number,
                    varied: machine.varied,
                    changed: machine.changed,
                });
            }
        }
    }
    Ok(planned)
}

/// The topology, and machines of further seeds with every cost drawn anew.
fn drawn_machines(topology: &Topology, args: &RunArgs, seeds: usize) -> Vec<Machine> {
    let draw = |number| {
        let seed = args.seed.wrapping_add(number as u64);
        let varied = if number == 0 { 0.0 } else { args.vary };
        Machine {
            topology: vary(topology, seed, varied),
            seed,
            number,
            varied,
            changed: None,
        }
    };
    (0..seeds).map(draw).collect()
}

/// The topology, and the same with one cost each halved and doubled.
fn changed_machines(topology: &Topology, args: &RunArgs) -> Vec<Machine> {
    let machine = |number, changed: Option<(usize, f64)>| Machine {
        topology: changed.map_or(topology.clone(), |(which, factor)| {
            scaled(topology, which, factor)
        }),
        seed: args.seed,
        number,
        varied: 0.0,
        changed: changed.map(|(which, factor)| (names()[which], factor)),
    };
    let changed = changes(topology, args).into_iter().map(Some);
    let all = std::iter::once(None).chain(changed);
    all.enumerate()
        .map(|(number, changed)| machine(number, changed))
        .collect()
}

/// The costs that can matter, each with both factors: a machine is another with them, and soft page tables have no
/// kernel beneath.
fn changes(topology: &Topology, args: &RunArgs) -> Vec<(usize, f64)> {
    let names = names();
    let kernel = args.mmu == MmuKind::Uffd.name();
    let all = (0..names.len()).flat_map(|at| FACTORS.map(|factor| (at, factor)));
    let matters = |&(which, factor): &(usize, f64)| {
        (kernel || !names[which].starts_with("kernel."))
            && scaled(topology, which, factor) != *topology
    };
    all.filter(matters).collect()
}

fn job(workload: Workload, args: &RunArgs, topology: Topology, cores: usize) -> Result<Job, Error> {
    let threads = args.threads.unwrap_or(match workload {
        Workload::Thrash => THRASH_THREADS,
        // Many wait for swap at a time.
        Workload::SwapRetry => 4 * cores,
        // One maps, so that one is left to touch.
        Workload::Storm => cores.max(2),
        _ => cores,
    });
    if threads > MOST_THREADS {
        return Err(Error::input(format_args!(
            "{threads} threads: at most {MOST_THREADS} find room"
        )));
    }
    let sizes = [
        ("--memory", args.memory),
        ("--region", args.region),
        ("--size", args.size),
        ("--file-size", args.file_size),
    ];
    for (option, bytes) in sizes {
        if bytes.is_some_and(|bytes| bytes < MIN_BYTES) {
            return Err(Error::input(format_args!(
                "{option}: less than a page cannot be simulated"
            )));
        }
        if bytes.is_some_and(|bytes| bytes > MOST_BYTES) {
            return Err(Error::input(format_args!(
                "{option}: more than 1 TiB cannot be simulated"
            )));
        }
    }
    if args.files.is_some_and(|files| files > MOST_FILES) {
        return Err(Error::input(format_args!(
            "--files: more than {MOST_FILES} cannot be simulated"
        )));
    }
    let regions = args.region.unwrap_or(0).saturating_mul(threads as u64);
    if regions > MOST_BYTES {
        return Err(Error::input(format_args!(
            "--region: more than 1 TiB of all {threads} threads cannot be simulated"
        )));
    }
    let cpus = topology.cpus();
    if cores > cpus {
        return Err(Error::input(format_args!(
            "--cores {cores}: {} has {cpus} CPUs",
            topology.name
        )));
    }
    let mut job = Job::new(workload, topology, cores, threads);
    job.mmu = mmu(&args.mmu)?;
    job.shared = args.shared;
    if let Some(verb) = &args.verb {
        job.verb = verb.parse().map_err(Error::input)?;
    }
    job.contended = args.contended;
    if let Some(region) = args.region {
        // The budget that the workload takes by default is for its own region.
        let more = region.saturating_sub(job.region);
        job.memory = (job.memory).saturating_add(more.saturating_mul(2 * threads as u64));
        job.region = region;
    }
    job.memory = args.memory.unwrap_or(job.memory);
    if job.swap > 0 {
        // So pages that forks write again find slots.
        job.region = args.size.unwrap_or(job.memory.saturating_mul(SIZE));
        job.swap = job.region.saturating_mul(2);
    }
    if workload == Workload::Hugetlb {
        job.file = args.size.unwrap_or(job.file);
        job.together = args.together;
        job.populated = args.start.as_deref() != Some("empty");
    }
    job.theta = args.theta.unwrap_or(job.theta);
    job.forks = !args.no_forks;
    job.file = args.file_size.unwrap_or(job.file);
    job.files = args.files.unwrap_or(job.files);
    job.mappers = args.mappers.unwrap_or(job.mappers);
    job.seconds = args.seconds.unwrap_or(job.seconds);
    job.patience = args.starvation_timeout.unwrap_or(job.patience);
    job.io_errors_per_million = args.io_errors;
    job.trace = args.trace.is_some();
    Ok(job)
}

fn mmu(text: &str) -> Result<MmuKind, Error> {
    text.parse()
        .map_err(|why| Error::input(format_args!("--mmu: {why}")))
}

/// The machine, before any seed has varied it.
fn topology(workload: Workload, args: &RunArgs) -> Result<Topology, Error> {
    let default = match workload {
        Workload::Pft | Workload::Spf | Workload::Loops | Workload::Anon | Workload::Hugetlb => {
            "broadwell-56"
        }
        _ => "x86-256",
    };
    let name = args.topology.as_deref().unwrap_or(default);
    let mut topology = preset::find(name).map_err(Error::input)?;
    match (args.placement.as_deref(), workload) {
        (Some("packed"), _) => topology.placement = Placement::Packed,
        (Some(_), _) => topology.placement = Placement::Spread,
        // A phone's cores are near each other.
        (None, Workload::WarmStart | Workload::SwapRetry) => topology.placement = Placement::Packed,
        (None, _) => {}
    }
    Ok(topology)
}

fn cores(workload: Workload, args: &RunArgs, topology: &Topology) -> Vec<usize> {
    let cpus = topology.cpus();
    match (&args.cores[..], workload) {
        ([], Workload::Pft) => {
            let points = PFT_CORES.into_iter().filter(|&cores| cores <= cpus);
            // 56 is where the first table ends, and no point of the second.
            points.filter(|&cores| cores != 56 || cpus <= 56).collect()
        }
        ([], Workload::Thrash) => vec![cpus],
        ([], Workload::Hugetlb) => vec![HUGETLB_CORES.min(cpus)],
        ([], _) => vec![FEW_CORES.min(cpus)],
        (given, _) => given.to_vec(),
    }
}

fn policies(workload: Workload, given: &[String]) -> Result<Vec<(String, Policies)>, Error> {
    let given: Vec<&str> = match (given, workload) {
        ([], Workload::Pft | Workload::Spf) => vec!["lock=rwsem", "lock=refcount", "lock=biased"],
        ([], Workload::Thrash) => {
            vec!["retry=mmap-lock+pin=no", "retry=vma-lock+pin=no", "default"]
        }
        ([], Workload::SwapRetry) => {
            vec!["retry=mmap-lock+pin=no", "pin=no", "default", "retry=held"]
        }
        ([], Workload::Anon | Workload::Loops) => vec!["default"],
        ([], Workload::Hugetlb) => {
            vec!["share=i-mmap-rwsem", "share=document", "share=vma-lock"]
        }
        ([], _) => vec!["retry=mmap-lock+pin=no", "retry=vma-lock+pin=no"],
        (given, _) => given.iter().map(String::as_str).collect(),
    };
    let mut named: Vec<(String, Policies)> = Vec::new();
    for text in given {
        let text = if text == "default" { "" } else { text };
        let policies =
            on::policies(text).map_err(|why| Error::input(format_args!("--policies: {why}")))?;
        if named.iter().any(|(_, other)| *other == policies) {
            return Err(Error::input(format_args!(
                "--policies: `{}` is there twice",
                name(text)
            )));
        }
        named.push((name(text), policies));
    }
    Ok(named)
}

fn name(text: &str) -> String {
    match text {
        "" => "default".into(),
        text => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn args(words: &[&str]) -> RunArgs {
        let command = RunArgs::augment_args(clap::Command::new("sim"));
        let matches = command.try_get_matches_from([&["sim"], words].concat());
        RunArgs::from_arg_matches(&matches.unwrap()).unwrap()
    }

    #[test]
    fn without_arguments_a_workload_is_its_documents() {
        let runs = plan(Workload::Pft, &args(&[])).unwrap();
        assert_eq!(runs.len(), 8 * 3 * 3);
        assert_eq!(runs.last().unwrap().job.cores, 56);
        let zen = plan(Workload::Pft, &args(&["--topology", "zen5-256"])).unwrap();
        assert_eq!(zen.len(), 10 * 3 * 3);
        assert!(zen.iter().all(|run| run.job.threads == run.job.cores));
        let thrash = plan(Workload::Thrash, &args(&[])).unwrap();
        assert_eq!((thrash[0].job.cores, thrash[0].job.threads), (256, 500));
        let phone = plan(Workload::WarmStart, &args(&[])).unwrap();
        assert_eq!(phone[0].job.cores, 8);
        assert_eq!(phone[0].job.topology.placement, Placement::Packed);
    }

    #[test]
    fn a_seed_is_the_same_machine_for_all_policies_and_the_first_is_the_preset() {
        let words = ["--cores", "4", "--seeds", "3", "--seed", "7"];
        let runs = plan(Workload::Pft, &args(&words)).unwrap();
        let preset = preset::named("broadwell-56").unwrap();
        assert_eq!(runs[0].job.topology, preset);
        for number in 0..3 {
            let [a, b] = [&runs[number].job, &runs[number + 3].job];
            assert_eq!((a.seed, &a.topology), (b.seed, &b.topology));
            assert_eq!(a.seed, 7 + number as u64);
        }
        assert_ne!(runs[1].job.topology, preset);
        assert_ne!(runs[1].job.topology, runs[2].job.topology);
    }

    #[test]
    fn programs_that_cannot_run_are_refused() {
        let error = |workload, words: &[&str]| {
            let error = plan(workload, &args(words)).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        let pft = Workload::Pft;
        assert!(error(pft, &["--cores", "57"]).contains("broadwell-56 has 56 CPUs"));
        assert!(error(pft, &["--topology", "vax"]).contains("vax"));
        assert!(error(pft, &["--policies", "lock=none"]).contains("lock"));
        assert!(error(pft, &["--policies", "default,lock=refcount"]).contains("twice"));
        assert!(error(pft, &["--policies", "lock=rwsem+lock=biased"]).contains("twice"));
        assert!(error(pft, &["--cores", "4,1,4"]).contains("--cores has 4 twice"));
        assert!(error(pft, &["--mmu", "hard"]).contains("soft or uffd"));
        assert!(error(pft, &["--trace", "t"]).contains("single run, not 72"));
        assert!(error(pft, &["--threads", "20000"]).contains("20000 threads"));
        assert!(error(pft, &["--seeds", "999999"]).contains("more than"));
    }

    #[test]
    fn help_names_the_defaults() {
        let mut command = RunArgs::augment_args(clap::Command::new("sim"));
        let help = command.render_long_help().to_string();
        let said = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for (workload, seconds, memory) in [
            (
                Workload::Pft,
                "pft, spf and loops 0.01",
                "pft, spf and loops 8G",
            ),
            (Workload::Thrash, "thrash 0.5", "thrash and warm-start 1G"),
            (
                Workload::WarmStart,
                "warm-start 1,",
                "thrash and warm-start 1G",
            ),
            (Workload::Storm, "storm 0.2,", "storm 256M"),
            (
                Workload::SwapRetry,
                "swap-retry 0.25",
                "swap-retry and anon 64M",
            ),
            (
                Workload::Anon,
                "anon and hugetlb 0.1]",
                "swap-retry and anon 64M",
            ),
            (Workload::Hugetlb, "anon and hugetlb 0.1]", "hugetlb 8M"),
        ] {
            let job = &plan(workload, &args(&["--seeds", "1"])).unwrap()[0].job;
            let figure = |text: &str| {
                let last = text.rsplit(' ').next().unwrap();
                last.trim_end_matches([',', ']']).to_owned()
            };
            assert!(said.contains(seconds) && said.contains(memory), "{said}");
            assert_eq!(figure(seconds), job.seconds.to_string());
            let bytes = crate::size::parse(&figure(memory)).unwrap();
            assert_eq!(bytes, job.memory, "{workload}");
            for policy in policies(workload, &[]).unwrap() {
                assert!(said.contains(&policy.0), "{policy:?}");
            }
        }
        let job = |workload| plan(workload, &args(&[])).unwrap().remove(0).job;
        assert!(said.contains(&format!("[default: {}]", job(Workload::WarmStart).files)));
        assert!(said.contains(&format!("as starved [default: {}]", job(pft()).patience)));
    }

    #[test]
    fn options_of_other_workloads_are_refused() {
        for (workload, words, why) in [
            (Workload::Thrash, &["--size", "1G"][..], "--size is for"),
            (pft(), &["--theta", "0.5"], "--theta is for anon"),
            (pft(), &["--start", "populated"], "--start is for hugetlb"),
            (Workload::Anon, &["--region", "512M"], "--region is for pft"),
            (Workload::Spf, &["--shared"], "--shared is for pft"),
            (Workload::Storm, &["--loop", "mmap"], "--loop is for loops"),
        ] {
            let error = plan(workload, &args(words)).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(why), "{error}");
        }
        for (workload, words) in [
            (Workload::Hugetlb, &["--size", "1G", "--together"][..]),
            (Workload::Anon, &["--size", "1G", "--theta", "0.5"]),
            (Workload::WarmStart, &["--no-forks", "--files", "60"]),
            (Workload::Storm, &["--mappers", "2", "--file-size", "16M"]),
        ] {
            plan(workload, &args(words)).unwrap();
        }
    }

    #[test]
    fn a_larger_region_has_a_larger_budget() {
        let usual = plan(pft(), &args(&["--cores", "4"])).unwrap();
        let large = plan(pft(), &args(&["--cores", "4", "--region", "64M"])).unwrap();
        let populated = |run: &Planned| run.job.region * run.job.threads as u64;
        assert!(large[0].job.memory > populated(&large[0]));
        assert!(large[0].job.memory > usual[0].job.memory);
    }

    fn pft() -> Workload {
        Workload::Pft
    }
}
