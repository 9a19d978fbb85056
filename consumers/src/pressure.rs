//! Programs whose data are several times the memory they may have: the kernel's mapping, and `softfault run`.
//!
//! Each column runs the same program from a cold start, in a memory cgroup of the same size, page cache included. The columns
//! take turns. A program that is not done in time says how far it came.

use crate::Args;
use crate::cgroup::Cgroup;
use crate::programs::{Maps, VECTORS};
use crate::read_ahead::ReadAhead;
use crate::rows::median;
use crate::run::{Limit, Took, run as run_one};
use crate::unmodified::{Place, done, path, to_command};
use crate::{files, interrupt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The names of the cases.
pub const NAMES: [&str; 3] = ["vectors", "sparse", "thrash"];
/// The usual value of disks, and one of large disks.
const READ_AHEAD_KB: [u32; 2] = [128, 8192];
const THREADS_OF_A_THRASH: &str = "500";
/// How long a thrash lasts.
const SECONDS_OF_A_THRASH: &str = "20";

/// A program on its data.
struct Case {
    title: String,
    command: Vec<String>,
    /// A file or a folder.
    data: PathBuf,
    /// Of the cgroup.
    memory_mib: u64,
    /// Of that, the engine's part. The program's own memory and the page tables have the rest.
    engine_mib: u64,
    /// Headings of the table, each with the words of the standard error that its number comes after.
    numbers: &'static [(&'static str, &'static str)],
    columns: &'static [Column],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Kernel { read_ahead_kb: u32 },
    ToldRandom,
    Messages,
    Signals,
    InMemory,
}

impl Column {
    const LIMITED: [Self; 5] = [
        Self::Kernel {
            read_ahead_kb: READ_AHEAD_KB[0],
        },
        Self::Kernel {
            read_ahead_kb: READ_AHEAD_KB[1],
        },
        Self::ToldRandom,
        Self::Messages,
        Self::Signals,
    ];
    const ALL: [Self; 6] = [
        Self::LIMITED[0],
        Self::LIMITED[1],
        Self::LIMITED[2],
        Self::LIMITED[3],
        Self::LIMITED[4],
        Self::InMemory,
    ];

    fn name(self) -> String {
        match self {
            Self::Kernel { read_ahead_kb } => {
                format!("the kernel, `read_ahead_kb` {read_ahead_kb}")
            }
            Self::ToldRandom => "the kernel, with MADV_RANDOM".into(),
            Self::Messages => "`softfault run --faults messages`".into(),
            Self::Signals => "`softfault run --faults signals`".into(),
            Self::InMemory => "the kernel, all in memory, no limit".into(),
        }
    }

    /// The kernel does not read ahead where it is told MADV_RANDOM, and the engine reads past the page cache.
    fn read_ahead_kb(self) -> u32 {
        match self {
            Self::Kernel { read_ahead_kb } => read_ahead_kb,
            _ => READ_AHEAD_KB[1],
        }
    }
}

/// Prints a table for each case that is wanted.
pub fn run(args: &Args) -> Result<(), String> {
    if !Cgroup::is_there() {
        return Err("no memory cgroup can be made here: --pressure needs root".into());
    }
    let place = Place::new(&args.dir)?;
    let random = place.dir.join("random.so");
    compile("random.c", &["-shared", "-fPIC"], &random)?;
    for name in &args.pressure {
        let case = Case::of(name, args, &place.dir)?;
        let runs = case.runs(args, &place, &random)?;
        case.print(args, &runs);
        equal(&runs)?;
    }
    Ok(())
}

/// Compiles a program that is beside us, by the system's C compiler.
fn compile(source: &str, how: &[&str], to: &Path) -> Result<(), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("unmodified")
        .join(source);
    done(
        Command::new("cc")
            .arg("-O2")
            .args(how)
            .arg("-o")
            .arg(to)
            .arg(source),
    )
}

impl Case {
    fn of(name: &str, args: &Args, dir: &Path) -> Result<Self, String> {
        match name {
            "vectors" => Self::vectors(args, dir),
            "sparse" => Self::sparse(dir),
            _ => Self::thrash(dir),
        }
    }

    /// An index that is six times the memory, searched by 32 threads.
    fn vectors(args: &Args, dir: &Path) -> Result<Self, String> {
        let (memory_mib, threads) = (512, "32");
        let index_mib = 6 * memory_mib;
        let program = VECTORS.build(dir, Maps::Memmap2)?;
        let index = dir.join("pressure.usearch");
        if !index.exists() {
            eprintln!("making {}: some minutes", index.display());
            // Under another name first, so that one that is there is whole.
            let unfinished = dir.join("unfinished-pressure.usearch");
            done(
                Command::new(&program)
                    .arg("make")
                    .arg(&unfinished)
                    .arg(index_mib.to_string()),
            )?;
            std::fs::rename(&unfinished, &index).map_err(|error| error.to_string())?;
        }
        let (queries, seconds) = (args.queries.to_string(), args.timeout.to_string());
        let command = [
            &path(&program),
            "search",
            &path(&index),
            &queries,
            threads,
            &seconds,
        ];
        Ok(Self {
            title: format!(
                "{queries} searches of a vector index of {index_mib} MiB, {threads} threads, at most {seconds} s"
            ),
            command: command.map(str::to_owned).into(),
            data: index,
            memory_mib,
            engine_mib: 288,
            numbers: &[
                ("first 1,000 answers, s", "first 1,000 "),
                ("searches a second", " s, "),
                ("p99.9, ms", "p99.9 "),
            ],
            columns: &Column::ALL,
        })
    }

    /// Document 003's: one page in a hundred, in a drawn order.
    fn sparse(dir: &Path) -> Result<Self, String> {
        let program = dir.join("sparse");
        compile("sparse.c", &[], &program)?;
        let data = files::bytes(dir, 4096).map_err(|error| error.to_string())?;
        Ok(Self {
            title: "one page in a hundred of 4 GiB, in a drawn order, one thread".into(),
            command: vec![path(&program), path(&data), "random".into()],
            data,
            memory_mib: 1024,
            engine_mib: 896,
            numbers: &[("touching, s", "took ")],
            columns: &Column::LIMITED,
        })
    }

    /// Document 000's: threads that map, read and unmap 16 MiB each.
    fn thrash(dir: &Path) -> Result<Self, String> {
        let program = dir.join("thrash");
        compile("thrash.c", &["-pthread"], &program)?;
        let data = dir.join("thrash-files");
        std::fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        done(
            Command::new(&program)
                .arg("make")
                .arg(&data)
                .arg(THREADS_OF_A_THRASH),
        )?;
        let command = [
            &path(&program),
            "run",
            &path(&data),
            THREADS_OF_A_THRASH,
            SECONDS_OF_A_THRASH,
        ];
        Ok(Self {
            title: format!(
                "{THREADS_OF_A_THRASH} threads that map, read, check and unmap 16 MiB each, for {SECONDS_OF_A_THRASH} s"
            ),
            command: command.map(str::to_owned).into(),
            data,
            memory_mib: 1024,
            engine_mib: 832,
            numbers: &[
                ("rounds", "rounds "),
                ("of the last thread", "last thread "),
                ("pages", "pages "),
            ],
            columns: &Column::LIMITED,
        })
    }

    fn runs(
        &self,
        args: &Args,
        place: &Place,
        random: &Path,
    ) -> Result<Vec<(Column, Vec<Took>)>, String> {
        let mut runs: Vec<(Column, Vec<Took>)> = self
            .columns
            .iter()
            .map(|&column| (column, Vec::new()))
            .collect();
        for _ in 0..args.repeat {
            for (column, of) in &mut runs {
                interrupt::check()?;
                let _kept = ReadAhead::set(&place.dir, column.read_ahead_kb())?;
                let made_ready = match column {
                    Column::InMemory => files::warm(&self.data),
                    _ => files::cool(&self.data),
                };
                made_ready.map_err(|error| format!("{}: {error}", self.data.display()))?;
                let limit = (*column != Column::InMemory).then_some(Limit {
                    bytes: self.memory_mib << 20,
                    then: None,
                });
                // A program that gives up by itself has its time first.
                let timeout = Duration::from_secs(2 * args.timeout + 10);
                let took = run_one(self.command_of(*column, place, random), limit, timeout)?;
                eprintln!("{}: {}, {}", column.name(), took.said.trim(), answer(&took));
                of.push(took);
            }
        }
        Ok(runs)
    }

    fn command_of(&self, column: Column, place: &Place, random: &Path) -> Command {
        let faults = match column {
            Column::Messages => "messages",
            Column::Signals => "signals",
            _ => {
                let mut command = to_command(&self.command);
                if column == Column::ToldRandom {
                    command.env("LD_PRELOAD", random);
                }
                return command;
            }
        };
        let mut run = Command::new(&place.softfault);
        run.args([
            "run",
            "--memory",
            &format!("{}M", self.engine_mib),
            "--faults",
            faults,
            "--",
        ])
        .args(&self.command);
        run
    }

    fn print(&self, args: &Args, runs: &[(Column, Vec<Took>)]) {
        println!(
            "\n{}; in {} MiB, cold; medians of {}.\n",
            self.title, self.memory_mib, args.repeat
        );
        let headings: Vec<_> = self.numbers.iter().map(|(heading, _)| *heading).collect();
        println!(
            "| | {} | whole run, s | processor, s | read, GiB | peak, MiB |",
            headings.join(" | ")
        );
        println!("|---|{}---|---|---|---|", "---|".repeat(headings.len()));
        for (column, of) in runs {
            let numbers = self.numbers.iter().map(|(_, after)| {
                match median(of, |took| number(&took.said, after)) {
                    number if number.is_finite() => format!("{number:.1}"),
                    _ => "not reached".into(),
                }
            });
            let seconds = median(of, |took| took.seconds.unwrap_or(f64::INFINITY));
            let seconds = match seconds.is_finite() {
                true => format!("{seconds:.1}"),
                false => "–".into(),
            };
            println!(
                "| {} | {} | {seconds} | {:.1} | {:.2} | {:.0} |",
                column.name(),
                numbers.collect::<Vec<_>>().join(" | "),
                median(of, |took| took.processor),
                median(of, |took| took.read_mib as f64 / 1024.0),
                median(
                    of,
                    |took| took.cgroup_peak.map_or(took.peak_mib, |peak| peak >> 20) as f64
                ),
            );
        }
    }
}

/// A number that the program says after these words: endless if it says none.
fn number(said: &str, after: &str) -> f64 {
    let rest = said.rsplit_once(after).map(|(_, rest)| rest);
    let word = rest.and_then(|rest| rest.split([' ', ',', '\n']).next());
    word.and_then(|word| word.parse().ok())
        .unwrap_or(f64::INFINITY)
}

fn answer(took: &Took) -> String {
    String::from_utf8_lossy(&took.answer).trim().to_owned()
}

/// No run has failed, and all that came to their end have answered the same.
fn equal(runs: &[(Column, Vec<Took>)]) -> Result<(), String> {
    for (column, of) in runs {
        for took in of {
            let why = match took.failed {
                Some(how) => how.to_string(),
                None if took.seconds.is_some() && answer(took).is_empty() => "no answer".into(),
                None => continue,
            };
            return Err(format!("{}: {why}: {}", column.name(), took.said.trim()));
        }
    }
    let ended = runs.iter().flat_map(|(_, of)| of).map(answer);
    let mut answers: Vec<_> = ended
        .filter(|answer| !["", "given up"].contains(&answer.as_str()))
        .collect();
    answers.sort();
    answers.dedup();
    match answers.as_slice() {
        [] => Err("no run came to its end: --timeout gives more time".into()),
        [one] if one == "a page was wrong" => Err(one.clone()),
        [_] => Ok(()),
        _ => Err(format!("the answers differ: {answers:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn took(answer: &str) -> Took {
        Took {
            seconds: Some(1.0),
            answer: answer.into(),
            ..Took::default()
        }
    }

    /// Failed before: runs without an answer were left out, whatever had ended them.
    #[test]
    fn a_run_that_failed_is_an_error() {
        let with = |ours: Took| {
            let theirs = vec![took("1\n"), took("1\n")];
            let kernel = Column::Kernel { read_ahead_kb: 128 };
            equal(&[(kernel, theirs), (Column::Messages, vec![ours])])
        };
        assert_eq!(with(took("1\n")), Ok(()));
        assert!(with(took("2\n")).unwrap_err().contains("differ"));
        assert!(with(took("")).unwrap_err().contains("no answer"));
        // Given up, or out of memory.
        assert_eq!(with(Took::default()), Ok(()));
        let crashed = with(Took {
            failed: Some(ExitStatus::from_raw(139)),
            said: "it said so\n".into(),
            ..Took::default()
        });
        let why = crashed.unwrap_err();
        assert!(
            why.starts_with("`softfault run --faults messages`: signal: 11"),
            "{why}"
        );
        assert!(why.ends_with(": it said so"), "{why}");
    }
}
