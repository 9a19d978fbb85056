//! `softfault-mutate`: breaks the engine, or the library over it, one patch at a time, in a copy of the
//! workspace, and tries the tests of each world on it. Exit code 1 if nobody
//! notices one.

use std::fs::{self, TryLockError};
use std::io::Write as _;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use softfault_mutate::attempt::{Bench, work_folder};
use softfault_mutate::mutation::{Mutation, all};
use softfault_mutate::table::{Row, markdown};
use softfault_mutate::trial::Trial;
use softfault_mutate::workspace::{fetch, root};
use softfault_mutate::world::World;

/// Breaks the engine, or the library over it, one patch at a time, and shows which world notices.
#[derive(Parser)]
struct Arguments {
    /// Mutations whose names contain one of these; all if there is none.
    names: Vec<String>,
    /// Worlds to try them in.
    #[arg(long, value_delimiter = ',', default_values_t = World::ALL)]
    world: Vec<World>,
    /// Only the tests that patches name: the cell of a world that a patch does not
    /// name is left empty.
    #[arg(long)]
    named: bool,
    /// Seconds for a world's tests where a patch names none of them.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Mutations tried at the same time, each in a copy of its own; one a processor if not given.
    #[arg(long, value_name = "COUNT")]
    jobs: Option<NonZero<usize>>,
    /// Tries mutations again that an earlier run on the same source has answered.
    #[arg(long)]
    again: bool,
    /// Writes the table as JSON; '-' is the standard output.
    #[arg(long, value_name = "PATH")]
    json: Option<String>,
    /// Writes the table as markdown.
    #[arg(long, value_name = "PATH")]
    markdown: Option<String>,
}

fn main() -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    match run(&Arguments::parse(), &stop) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(_) if stop.load(Ordering::Relaxed) => ExitCode::from(130),
        Err(error) => {
            eprintln!("softfault-mutate: {error}");
            ExitCode::from(2)
        }
    }
}

/// True if every mutation was noticed.
fn run(arguments: &Arguments, stop: &Arc<AtomicBool>) -> Result<bool, String> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let set = signal_hook::flag::register(signal, Arc::clone(stop));
        set.map_err(|error| error.to_string())?;
    }
    let root = root();
    let mut mutations = all(&root)?;
    let wanted = &arguments.names;
    mutations.retain(|mutation| {
        let is_named = arguments
            .world
            .iter()
            .any(|&world| mutation.named(world).is_some());
        (wanted.is_empty() || wanted.iter().any(|name| mutation.name.contains(name)))
            && (is_named || !arguments.named)
    });
    if mutations.is_empty() {
        let none = match wanted.as_slice() {
            [] => "names a test of these worlds".to_owned(),
            names => format!("matches {}", names.join(", ")),
        };
        return Err(format!("no mutation {none}: see mutations/"));
    }
    let work = work_folder(&root);
    let _alone = alone_in(&work)?;
    fetch(&root)?;
    let jobs = (arguments.jobs).or_else(|| std::thread::available_parallelism().ok());
    // Never more copies than there is work for.
    let jobs = jobs.map_or(1, NonZero::get).min(mutations.len());
    let bench = |job: usize| {
        let folder = work.join(job.to_string());
        Bench {
            source: folder.join("source"),
            target: folder.join("target"),
            output: folder.join("output"),
            stop: Arc::clone(stop),
        }
    };
    let benches = (0..jobs).map(bench).collect();
    let mut trial = Trial::new(root, benches, work.join("answers.json"));
    trial.seconds = Duration::from_secs(arguments.seconds);
    trial.named = arguments.named;
    if !arguments.again {
        trial.recall();
    }
    let (rows, is_whole) = trial.all(&mutations, &arguments.world)?;
    let text = markdown(&rows, &arguments.world);
    println!("\n{text}");
    if let Some(path) = &arguments.markdown {
        write(path, &text)?;
    }
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?;
        write(path, &(json + "\n"))?;
    }
    let missed: Vec<&str> = (rows.iter())
        .filter(|row| is_missed(row, &mutations))
        .map(|row| row.mutation.as_str())
        .collect();
    match missed.as_slice() {
        [] => println!("{} mutations, each caught", rows.len()),
        missed => println!("NOT CAUGHT: {}", missed.join(", ")),
    }
    match is_whole {
        true => Ok(missed.is_empty()),
        false => Err("stopped".into()),
    }
}

/// True if no world noticed, or if one did not that the patch names.
fn is_missed(row: &Row, mutations: &[Mutation]) -> bool {
    let mutation = (mutations.iter()).find(|mutation| mutation.name == row.mutation);
    let is_named = |world: World| mutation.is_some_and(|mutation| mutation.named(world).is_some());
    let passed = |world: &World| {
        let cell = row.worlds.get(world.name());
        is_named(*world) && cell.is_some_and(|cell| !cell.is_caught())
    };
    !row.is_caught() || World::ALL.iter().any(passed)
}

/// Refuses a second run in the same folder, which would undo the mutations of the first. As long as the file lives.
fn alone_in(work: &Path) -> Result<fs::File, String> {
    let wrong = |error| format!("{}: {error}", work.display());
    fs::create_dir_all(work).map_err(wrong)?;
    let file = fs::File::create(work.join("lock")).map_err(wrong)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(format!(
            "another softfault-mutate uses {}: wait for its end",
            work.display()
        )),
        Err(TryLockError::Error(error)) => Err(wrong(error)),
    }
}

fn write(path: &str, text: &str) -> Result<(), String> {
    match path {
        "-" => std::io::stdout().write_all(text.as_bytes()),
        path => fs::write(path, text),
    }
    .map_err(|error| format!("{path}: {error}"))
}
