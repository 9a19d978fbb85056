//! `softfault-mutate`: breaks the engine, or the library over it, one patch at a time, in a copy of the
//! workspace, and tries the tests of each world on it. Exit code 1 if nobody
//! notices one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use softfault_mutate::attempt::{Bench, Binary, Chosen, Ended, Trouble, work_folder};
use softfault_mutate::mutation::{Mutation, all};
use softfault_mutate::table::{Cell, Row, markdown};
use softfault_mutate::workspace::{copy_workspace, digest, root};
use softfault_mutate::world::{Tests, World, models_of};

/// Time for all tests of a world that patches name, on unbroken source.
const UNBROKEN: Duration = Duration::from_secs(3600);

/// Time for a test that a patch names. Those of unbroken source take seconds.
fn limit(world: World) -> Duration {
    match world {
        // A mutation may give it more to explore.
        World::Loom | World::Shuttle => Duration::from_secs(300),
        World::Sim | World::Std | World::Library => Duration::from_secs(60),
    }
}

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
        return Err("no such mutation".into());
    }
    let work = work_folder(&root);
    let mut trial = Trial {
        root,
        bench: Bench {
            source: work.join("source"),
            target: work.join("target"),
            output: work.join("output"),
            stop: Arc::clone(stop),
        },
        known: BTreeMap::new(),
        answers: work.join("answers.json"),
        seconds: Duration::from_secs(arguments.seconds),
        named: arguments.named,
    };
    trial.restore()?;
    if !arguments.again {
        trial.recall();
    }
    let rows = trial.all(&mutations, &arguments.world);
    // However it ended, the copy is as it should be.
    trial.restore()?;
    let (rows, is_whole) = rows?;
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
        .filter(|row| !row.is_caught())
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

fn write(path: &str, text: &str) -> Result<(), String> {
    match path {
        "-" => std::io::stdout().write_all(text.as_bytes()),
        path => fs::write(path, text),
    }
    .map_err(|error| format!("{path}: {error}"))
}

/// The mutations, the copy, and the known answers.
struct Trial {
    root: std::path::PathBuf,
    bench: Bench,
    /// Answers of this source, by mutation and world.
    known: BTreeMap<String, Cell>,
    answers: std::path::PathBuf,
    seconds: Duration,
    named: bool,
}

impl Trial {
    fn restore(&self) -> Result<(), String> {
        let copied = copy_workspace(&self.root, &self.bench.source);
        copied.map_err(|error| format!("{}: {error}", self.bench.source.display()))
    }

    /// Takes the answers of an earlier run on the same source.
    fn recall(&mut self) {
        let text = fs::read_to_string(&self.answers).unwrap_or_default();
        let answers: (u64, BTreeMap<String, Cell>) =
            serde_json::from_str(&text).unwrap_or_default();
        if digest(&self.root).is_ok_and(|digest| digest == answers.0) {
            self.known = answers.1;
        }
    }

    fn remember(&self) {
        let Ok(digest) = digest(&self.root) else {
            return;
        };
        // A run that cannot note its answers gives them all the same.
        if let Ok(text) = serde_json::to_string(&(digest, &self.known)) {
            let _ = fs::write(&self.answers, text);
        }
    }

    /// Tries all; false if it was stopped before the last.
    fn all(
        &mut self,
        mutations: &[Mutation],
        worlds: &[World],
    ) -> Result<(Vec<Row>, bool), String> {
        for &world in worlds {
            self.unbroken(world, mutations)?;
        }
        let width = mutations.iter().map(|m| m.name.len()).max().unwrap_or(0);
        let mut rows = Vec::new();
        for (place, mutation) in mutations.iter().enumerate() {
            eprint!(
                "{:3}/{} {:width$} ",
                place + 1,
                mutations.len(),
                mutation.name
            );
            let path = mutation.edits[0].path.display().to_string();
            let mut row = Row {
                mutation: mutation.name.clone(),
                what: mutation.what.clone(),
                path,
                worlds: BTreeMap::new(),
            };
            for &world in worlds {
                let begin = Instant::now();
                let key = self.key(mutation, world);
                let cell = match self.known.get(&key) {
                    Some(cell) => cell.clone(),
                    None => match self.one(mutation, world) {
                        Ok(cell) => cell,
                        Err(Trouble::Stopped) => {
                            eprintln!("stopped");
                            return Ok((rows, false));
                        }
                        Err(trouble) => return Err(format!("{}: {trouble:?}", mutation.name)),
                    },
                };
                say(world, &cell, begin.elapsed());
                self.known.insert(key, cell.clone());
                row.worlds.insert(world.name().into(), cell);
            }
            eprintln!();
            self.remember();
            rows.push(row);
        }
        Ok((rows, true))
    }

    /// The inputs of an answer beside the source.
    fn key(&self, mutation: &Mutation, world: World) -> String {
        let effort = match (mutation.named(world), self.named) {
            (Some(catch), _) => format!("{}::{}", catch.file, catch.test),
            (None, true) => "none".into(),
            (None, false) => format!("{} s", self.seconds.as_secs()),
        };
        // The patch itself: it is no part of the source.
        format!("{} {world} {effort} {:?}", mutation.name, mutation.edits)
    }

    /// On unbroken source every test that is named must pass.
    fn unbroken(&mut self, world: World, mutations: &[Mutation]) -> Result<(), String> {
        let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for catch in mutations.iter().filter_map(|m| m.named(world)) {
            files.entry(&catch.file).or_default().insert(&catch.test);
        }
        for (file, tests) in files {
            let tests: Vec<&str> = tests.into_iter().collect();
            let key = format!("unbroken {world} {file} {tests:?}");
            if self.known.contains_key(&key) {
                continue;
            }
            eprint!("unbroken {world}: {} of {file} ...", tests.len());
            let begin = Instant::now();
            match self.run_named(world, file, &tests, UNBROKEN) {
                Ok(Ended::Passed) => self.known.insert(key, Cell::Missed { in_part: false }),
                Err(Trouble::Stopped) => return Err("stopped".into()),
                ended => return Err(format!("{file} on unbroken source: {ended:?}")),
            };
            eprintln!(" {:.0} s", begin.elapsed().as_secs_f32());
        }
        self.remember();
        Ok(())
    }

    fn one(&self, mutation: &Mutation, world: World) -> Result<Cell, Trouble> {
        if mutation.is_of_orderings() && !world.sees_orderings() {
            return Ok(Cell::Blind);
        }
        let named = mutation.named(world);
        if named.is_none() && self.named {
            return Ok(Cell::None);
        }
        self.restore().map_err(other)?;
        mutation.apply(&self.bench.source).map_err(other)?;
        let begin = Instant::now();
        let caught = |file: &str, test: String, why: String| Cell::Caught {
            test: format!("{file}::{test}"),
            why,
            seconds: begin.elapsed().as_secs_f32(),
        };
        let ended = match named {
            Some(catch) => match self.run_named(world, &catch.file, &[&catch.test], limit(world)) {
                Ok(Ended::Passed) => Ok(Cell::Missed { in_part: false }),
                Ok(Ended::TimeOut) => Ok(hung(world, &catch.file)),
                Ok(Ended::Failed(test, why)) => Ok(caught(&catch.file, test, why)),
                Err(trouble) => Err(trouble),
            },
            None => self.search(mutation, world, caught),
        };
        match ended {
            Err(Trouble::NotBuilt(why)) => Ok(Cell::Broken { why }),
            ended => ended,
        }
    }

    fn run_named(
        &self,
        world: World,
        file: &str,
        names: &[&str],
        limit: Duration,
    ) -> Result<Ended, Trouble> {
        let all = world.tests();
        let has = |tests: &&Tests| tests.files.contains(&file);
        let tests = all.iter().find(has).unwrap_or(&all[0]);
        let binaries = self.bench.build(tests, &[file])?;
        let binary = binaries.first().expect("a test file is a binary");
        self.bench.test(binary, Chosen::Tests(names), &[], limit)
    }

    /// Runs the world's tests in the time that is left.
    fn search(
        &self,
        mutation: &Mutation,
        world: World,
        caught: impl Fn(&str, String, String) -> Cell,
    ) -> Result<Cell, Trouble> {
        let mut modules = Vec::new();
        if world == World::Loom {
            let paths = (mutation.edits.iter()).map(|edit| edit.path.to_string_lossy());
            modules = (paths.flat_map(|path| models_of(&path)))
                .map(|module| format!("{module}::"))
                .collect();
            if modules.is_empty() {
                return Ok(Cell::None);
            }
        }
        let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
        let mut binaries: Vec<Binary> = Vec::new();
        for tests in world.tests() {
            let mut built = self.bench.build(tests, tests.files)?;
            // In the order of the list: the most likely to notice is first.
            let place = |binary: &Binary| tests.files.iter().position(|file| *file == binary.name);
            built.sort_by_key(place);
            binaries.extend(built);
        }
        let begin = Instant::now();
        for binary in &binaries {
            let left = self.seconds.saturating_sub(begin.elapsed());
            match (self.bench).test(binary, Chosen::Matching(&modules), world.in_short(), left)? {
                Ended::Passed => {}
                Ended::Failed(test, why) => return Ok(caught(&binary.name, test, why)),
                Ended::TimeOut => return Ok(Cell::Missed { in_part: true }),
            }
        }
        Ok(Cell::Missed { in_part: false })
    }
}

/// A test that a patch names and that does not end.
fn hung(world: World, file: &str) -> Cell {
    match world {
        // It has more to explore than before, and found nothing so far.
        World::Loom | World::Shuttle => Cell::Missed { in_part: true },
        World::Sim | World::Std | World::Library => Cell::Hung { test: file.into() },
    }
}

fn other(error: String) -> Trouble {
    Trouble::System(std::io::Error::other(error))
}

fn say(world: World, cell: &Cell, took: Duration) {
    let word = match cell {
        Cell::Caught { .. } => "caught",
        Cell::Hung { .. } => "hangs",
        Cell::Missed { in_part: false } => "missed",
        Cell::Missed { in_part: true } => "missed so far",
        Cell::Blind => "blind",
        Cell::None => "no test",
        Cell::Broken { .. } => "BROKEN",
    };
    eprint!(" {world}: {word} {:.0} s;", took.as_secs_f32());
    if let Cell::Broken { why } = cell {
        eprint!(" {why};");
    }
}
