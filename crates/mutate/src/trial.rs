//! Mutations, tried on several copies of the workspace at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::attempt::{Bench, Binary, Chosen, Ended, Trouble};
use crate::mutation::Mutation;
use crate::table::{Cell, Row};
use crate::workspace::{copy_workspace, digest};
use crate::world::{Tests, World, models_of};

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

/// The copies, and the known answers.
pub struct Trial {
    root: PathBuf,
    /// One a job.
    benches: Vec<Bench>,
    /// Answers of this source, by mutation and world.
    known: Mutex<BTreeMap<String, Cell>>,
    answers: PathBuf,
    /// For a world's tests where a patch names none of them.
    pub seconds: Duration,
    /// Only the tests that patches name.
    pub named: bool,
    /// For a test that a patch names.
    pub limit: fn(World) -> Duration,
}

impl Trial {
    /// Tries mutations of the workspace at `root` on these benches, and keeps the answers in a file.
    pub fn new(root: PathBuf, benches: Vec<Bench>, answers: PathBuf) -> Self {
        Self {
            root,
            benches,
            known: Mutex::default(),
            answers,
            seconds: Duration::from_secs(20),
            named: false,
            limit,
        }
    }

    fn restore(&self, bench: &Bench) -> Result<(), String> {
        let copied = copy_workspace(&self.root, &bench.source);
        copied.map_err(|error| format!("{}: {error}", bench.source.display()))
    }

    fn restore_all(&self) -> Result<(), String> {
        self.benches
            .iter()
            .try_for_each(|bench| self.restore(bench))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Cell>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the answers of an earlier run on the same source.
    pub fn recall(&mut self) {
        let text = fs::read_to_string(&self.answers).unwrap_or_default();
        let answers: (u64, BTreeMap<String, Cell>) =
            serde_json::from_str(&text).unwrap_or_default();
        if digest(&self.root).is_ok_and(|digest| digest == answers.0) {
            *self.known() = answers.1;
        }
    }

    fn remember(&self) {
        let Ok(digest) = digest(&self.root) else {
            return;
        };
        let known = self.known();
        // A run that cannot note its answers gives them all the same.
        if let Ok(text) = serde_json::to_string(&(digest, &*known)) {
            let _ = fs::write(&self.answers, text);
        }
    }

    /// Does the work of each item, as many at a time as there are benches. After an error no other item is begun, and it is returned.
    fn each<T: Sync>(
        &self,
        items: &[T],
        work: impl Fn(&Bench, usize, &T) -> Result<(), String> + Sync,
    ) -> Result<(), String> {
        let next = AtomicUsize::new(0);
        let error = Mutex::new(None);
        let one_after_another = |bench: &Bench| {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(place) else {
                    return;
                };
                if let Err(why) = work(bench, place, item) {
                    next.store(items.len(), Ordering::Relaxed);
                    let mut error = error.lock().unwrap_or_else(PoisonError::into_inner);
                    error.get_or_insert(why);
                }
            }
        };
        std::thread::scope(|scope| {
            for bench in &self.benches {
                scope.spawn(|| one_after_another(bench));
            }
        });
        let error = error.into_inner().unwrap_or_else(PoisonError::into_inner);
        error.map_or(Ok(()), Err)
    }

    /// Tries all; false if it was stopped before the last. However it ends, the copies are as they should be.
    pub fn all(
        &self,
        mutations: &[Mutation],
        worlds: &[World],
    ) -> Result<(Vec<Row>, bool), String> {
        self.restore_all()?;
        self.unbroken(worlds, mutations)?;
        let width = mutations.iter().map(|m| m.name.len()).max().unwrap_or(0);
        let rows = Mutex::new(BTreeMap::new());
        let tried = self.each(mutations, |bench, place, mutation| {
            let (row, line) = self.row(bench, mutation, worlds)?;
            let (name, count) = (&mutation.name, mutations.len());
            eprintln!("{:3}/{count} {name:width$}{line}", place + 1);
            let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
            rows.insert(place, row);
            self.remember();
            Ok(())
        });
        self.restore_all()?;
        let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
        let rows: Vec<Row> = rows.into_values().collect();
        match tried {
            Err(_) if self.benches[0].stop.load(Ordering::Relaxed) => Ok((rows, false)),
            tried => tried.map(|()| (rows, true)),
        }
    }

    /// A mutation in each world, and what is printed of it.
    fn row(
        &self,
        bench: &Bench,
        mutation: &Mutation,
        worlds: &[World],
    ) -> Result<(Row, String), String> {
        let mut line = String::new();
        let mut row = Row {
            mutation: mutation.name.clone(),
            what: mutation.what.clone(),
            path: mutation.edits[0].path.display().to_string(),
            worlds: BTreeMap::new(),
        };
        for &world in worlds {
            let begin = Instant::now();
            let key = self.key(mutation, world);
            let known = self.known().get(&key).cloned();
            let cell = match known {
                Some(cell) => cell,
                None => self
                    .one(bench, mutation, world)
                    .map_err(|trouble| format!("{}: {trouble:?}", mutation.name))?,
            };
            line += &said(world, &cell, begin.elapsed());
            self.known().insert(key, cell.clone());
            row.worlds.insert(world.name().into(), cell);
        }
        Ok((row, line))
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
    fn unbroken(&self, worlds: &[World], mutations: &[Mutation]) -> Result<(), String> {
        let mut files: BTreeMap<(World, &str), BTreeSet<&str>> = BTreeMap::new();
        for &world in worlds {
            for catch in mutations.iter().filter_map(|m| m.named(world)) {
                let tests = files.entry((world, &catch.file)).or_default();
                tests.insert(&catch.test);
            }
        }
        let files: Vec<_> = files.into_iter().collect();
        let passed = self.each(&files, |bench, _, ((world, file), tests)| {
            let tests: Vec<&str> = tests.iter().copied().collect();
            let key = format!("unbroken {world} {file} {tests:?}");
            if self.known().contains_key(&key) {
                return Ok(());
            }
            let begin = Instant::now();
            match self.run_named(bench, *world, file, &tests, UNBROKEN) {
                Ok(Ended::Passed) => {}
                ended => return Err(format!("{file} on unbroken source: {ended:?}")),
            }
            let (count, took) = (tests.len(), begin.elapsed().as_secs_f32());
            eprintln!("unbroken {world}: {count} of {file}: {took:.0} s");
            self.known().insert(key, Cell::Missed { in_part: false });
            Ok(())
        });
        self.remember();
        passed
    }

    fn one(&self, bench: &Bench, mutation: &Mutation, world: World) -> Result<Cell, Trouble> {
        if mutation.is_of_orderings() && !world.sees_orderings() {
            return Ok(Cell::Blind);
        }
        let named = mutation.named(world);
        if named.is_none() && self.named {
            return Ok(Cell::None);
        }
        self.restore(bench).map_err(other)?;
        mutation.apply(&bench.source).map_err(other)?;
        let begin = Instant::now();
        let caught = |file: &str, test: String, why: String| Cell::Caught {
            test: format!("{file}::{test}"),
            why,
            seconds: begin.elapsed().as_secs_f32(),
        };
        let ended = match named {
            Some(catch) => {
                let limit = (self.limit)(world);
                let run = || self.run_named(bench, world, &catch.file, &[&catch.test], limit);
                match run() {
                    Ok(Ended::Passed) => Ok(Cell::Missed { in_part: false }),
                    Ok(Ended::Failed(test, why)) => Ok(caught(&catch.file, test, why)),
                    // It has more to explore than before, and found nothing so far.
                    Ok(Ended::TimeOut) if matches!(world, World::Loom | World::Shuttle) => {
                        Ok(Cell::Missed { in_part: true })
                    }
                    // A busy machine, or one that is short of memory, is no proof: unbroken source has to pass now, in the
                    // same time.
                    Ok(Ended::TimeOut | Ended::Killed) => {
                        self.restore(bench).map_err(other)?;
                        match run()? {
                            Ended::Passed => Ok(Cell::Hung {
                                test: catch.file.clone(),
                            }),
                            _ => Ok(Cell::Missed { in_part: true }),
                        }
                    }
                    Err(trouble) => Err(trouble),
                }
            }
            None => self.search(bench, mutation, world, caught),
        };
        match ended {
            Err(Trouble::NotBuilt(why)) => Ok(Cell::Broken { why }),
            ended => ended,
        }
    }

    fn run_named(
        &self,
        bench: &Bench,
        world: World,
        file: &str,
        names: &[&str],
        limit: Duration,
    ) -> Result<Ended, Trouble> {
        let all = world.tests();
        let has = |tests: &&Tests| tests.files.contains(&file);
        let tests = all.iter().find(has).unwrap_or(&all[0]);
        let binaries = bench.build(tests, &[file])?;
        let binary = binaries.first().expect("a test file is a binary");
        bench.test(binary, Chosen::Tests(names), &[], limit)
    }

    /// Runs the world's tests in the time that is left.
    fn search(
        &self,
        bench: &Bench,
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
            let mut built = bench.build(tests, tests.files)?;
            // In the order of the list: the most likely to notice is first.
            let place = |binary: &Binary| tests.files.iter().position(|file| *file == binary.name);
            built.sort_by_key(place);
            binaries.extend(built);
        }
        let begin = Instant::now();
        for binary in &binaries {
            let left = self.seconds.saturating_sub(begin.elapsed());
            match bench.test(binary, Chosen::Matching(&modules), world.in_short(), left)? {
                Ended::Passed => {}
                Ended::Failed(test, why) => return Ok(caught(&binary.name, test, why)),
                Ended::TimeOut | Ended::Killed => return Ok(Cell::Missed { in_part: true }),
            }
        }
        Ok(Cell::Missed { in_part: false })
    }
}

fn other(error: String) -> Trouble {
    Trouble::System(std::io::Error::other(error))
}

fn said(world: World, cell: &Cell, took: Duration) -> String {
    let word = match cell {
        Cell::Caught { .. } => "caught",
        Cell::Hung { .. } => "hangs",
        Cell::Missed { in_part: false } => "missed",
        Cell::Missed { in_part: true } => "missed so far",
        Cell::Blind => "blind",
        // Most worlds have no test of a mutation.
        Cell::None => return String::new(),
        Cell::Broken { .. } => "BROKEN",
    };
    let why = match cell {
        Cell::Broken { why } => format!(" {why};"),
        _ => String::new(),
    };
    format!(" {world}: {word} {:.0} s;{why}", took.as_secs_f32())
}
