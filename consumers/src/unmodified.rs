//! Programs as their distributions built them, under `softfault run` and without.
//!
//! Each has a file, or a set of them, several times the budget. It runs twice: its standard output has to be the same, byte
//! for byte, and of the mappings of files that are large enough nine tenths have to be the engine's. Whatever was
//! declined is named.

use crate::programs::{Maps, RIPGREP};
use crate::{files, interrupt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The packages that pip installs: pinned, for a table that is the same later.
const PACKAGES: [&str; 3] = ["numpy==2.4.6", "lmdb==3.0.0", "usearch==2.26.6"];
const MIB: u64 = 1 << 20;
/// Of the bytes that programs map of files that are large enough.
const LEAST_TAKEN: f64 = 0.9;
/// The exit status of `softfault run` that does not run a program.
const REFUSED: i32 = 126;

/// Where everything is that the rows need.
pub struct Place {
    pub dir: PathBuf,
    python: PathBuf,
    pub softfault: PathBuf,
}

/// A row: a program on its data.
struct Row {
    name: &'static str,
    command: Vec<String>,
    expected: Expected,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Its mappings are taken.
    Taken,
    /// They are declined, for this reason.
    Declined(&'static str),
    /// `softfault run` refuses it by name.
    Refused,
}

/// Runs all rows and prints the table. An error if a row is not as it should be.
pub fn run(dir: &Path, budget_mib: u64) -> Result<(), String> {
    let place = Place::new(dir)?;
    println!("Budget {budget_mib} MiB.\n");
    println!(
        "| program | of its large files' mappings | declined | read, MiB | peak, MiB | output |"
    );
    println!("|---|---|---|---|---|---|");
    let mut wrong = 0;
    for row in place.rows(budget_mib)? {
        interrupt::check()?;
        match place.play(&row, budget_mib) {
            Ok(line) => println!("| {} | {line} |", row.name),
            Err(why) => {
                wrong += 1;
                println!("| {} | **{why}** |", row.name);
            }
        }
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!("{wrong} rows are not as they should be")),
    }
}

impl Place {
    pub fn new(dir: &Path) -> Result<Self, String> {
        let dir = dir.join("unmodified");
        let fail = |error: std::io::Error| format!("{}: {error}", dir.display());
        fs::create_dir_all(&dir).map_err(fail)?;
        let dir = dir.canonicalize().map_err(fail)?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target = dir.join("target");
        let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        cargo.args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "-p",
            "softfault-cli",
        ]);
        cargo.args(["-p", "softfault-preload", "--target-dir"]);
        cargo
            .arg(&target)
            .current_dir(root)
            .env_remove("CARGO_TARGET_DIR");
        done(&mut cargo)?;
        let virtual_environment = dir.join("python");
        let python = virtual_environment.join("bin/python");
        if !virtual_environment.join("installed").exists() {
            done(
                Command::new("python3")
                    .args(["-m", "venv"])
                    .arg(&virtual_environment),
            )?;
            let mut pip = Command::new(&python);
            pip.args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ]);
            done(pip.args(PACKAGES))?;
            File::create(virtual_environment.join("installed")).map_err(fail)?;
        }
        let softfault = target.join("release/softfault");
        Ok(Self {
            dir,
            python,
            softfault,
        })
    }

    /// The rows, with their data made. A part that the machine does not have is named, and left out.
    fn rows(&self, budget_mib: u64) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        let mut add = |name, expected, command: Vec<String>| {
            rows.push(Row {
                name,
                command,
                expected,
            });
        };
        let four = (4 * budget_mib).to_string();
        let base = self.made("base.db", "database.py", &["make", "{}", &four])?;
        add(
            "sqlite3, `PRAGMA mmap_size`, integrity check and 10,000 queries",
            Expected::Taken,
            self.script("database.py", &["ask", &base, "10000"]),
        );
        if let Some(repository) = self.repository()? {
            for (name, arguments) in [
                ("git fsck", ["fsck", "--full", "--no-progress"].as_slice()),
                ("git log -p", &["log", "-p", "--no-color"]),
            ] {
                let mut command = vec!["git".to_owned(), "-C".to_owned(), repository.clone()];
                command.extend(arguments.iter().map(|&argument| argument.to_owned()));
                add(name, Expected::Taken, command);
            }
        }
        let text = files::text(&self.dir, 16 * budget_mib).map_err(|error| error.to_string())?;
        let numbers = files::bytes(&self.dir, 8 * budget_mib).map_err(|error| error.to_string())?;
        let ripgrep = RIPGREP.build(&self.dir, Maps::Memmap2)?;
        let command = [
            path(&ripgrep),
            "--mmap".into(),
            "-c".into(),
            "-e".into(),
            "qu[aeiou]{3}".into(),
            path(&text),
        ];
        add("ripgrep 15.2 `--mmap`", Expected::Taken, command.into());
        add(
            "python3: numpy.memmap and mmap",
            Expected::Taken,
            self.script("arrays.py", &[&path(&numbers)]),
        );
        let pairs = self.made("lmdb", "pairs.py", &["make", "{}", &four])?;
        add(
            "LMDB (py-lmdb), a read-only environment",
            Expected::Taken,
            self.script("pairs.py", &["read", &pairs, "10000"]),
        );
        add(
            "LMDB, with a writer in the process",
            Expected::Declined("o_rdwr"),
            self.script(
                "pairs.py",
                &["beside-a-writer", &self.copied(&pairs)?, "1000"],
            ),
        );
        let six = (6 * budget_mib).to_string();
        let vectors = self.made("vectors.usearch", "vectors.py", &["make", "{}", &six])?;
        add(
            "usearch, `view=True`, 8 threads",
            Expected::Taken,
            self.script("vectors.py", &["search", &vectors, "300", "8"]),
        );
        if is_there("db_bench") {
            let rocks = path(&self.dir.join("rocks"));
            if !Path::new(&rocks).exists() {
                let mut fill = Command::new("db_bench");
                fill.args(rocks_arguments("fillseq,compact", &rocks, budget_mib))
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                done(&mut fill)?;
            }
            let mut command = vec!["db_bench".to_owned()];
            command.extend(rocks_arguments("readrandom", &rocks, budget_mib));
            command.extend(
                [
                    "--use_existing_db=1",
                    "--readonly=1",
                    "--mmap_read=1",
                    "--reads=20000",
                ]
                .map(str::to_owned),
            );
            add(
                "RocksDB's db_bench, `--mmap_read=1`",
                Expected::Taken,
                command,
            );
        } else {
            eprintln!("not run: RocksDB (Debian's rocksdb-tools has db_bench)");
        }
        if let Some(program) = self.without_a_loader()? {
            add(
                "a static Go program",
                Expected::Refused,
                vec![program, path(&text)],
            );
        }
        Ok(rows)
    }

    fn script(&self, name: &str, arguments: &[&str]) -> Vec<String> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("unmodified")
            .join(name);
        let mut command = vec![path(&self.python), path(&here)];
        command.extend(arguments.iter().map(|&argument| argument.to_owned()));
        command
    }

    /// A file that a script makes, once: under another name first, so that one that is there is whole.
    fn made(&self, name: &str, script: &str, arguments: &[&str]) -> Result<String, String> {
        let file = self.dir.join(name);
        if !file.exists() {
            eprintln!("making {}", file.display());
            let unfinished = self.dir.join(format!("unfinished-{name}"));
            let _ = fs::remove_file(&unfinished);
            let _ = fs::remove_dir_all(&unfinished);
            let command = self.script(script, arguments);
            let command = command
                .iter()
                .map(|argument| argument.replace("{}", &path(&unfinished)));
            done(&mut to_command(&command.collect::<Vec<_>>()))?;
            fs::rename(&unfinished, &file).map_err(|error| error.to_string())?;
        }
        Ok(path(&file))
    }

    /// A copy of an environment, which a program may write to.
    fn copied(&self, pairs: &str) -> Result<String, String> {
        let copy = self.dir.join("lmdb-to-be-written");
        let _ = fs::remove_dir_all(&copy);
        let made = fs::create_dir(&copy).and_then(|()| {
            let name = "data.mdb";
            fs::copy(Path::new(pairs).join(name), copy.join(name))
        });
        made.map_err(|error| format!("{}: {error}", copy.display()))?;
        Ok(path(&copy))
    }

    /// A repository with one pack of 300 MiB that does not compress.
    fn repository(&self) -> Result<Option<String>, String> {
        if !is_there("git") {
            eprintln!("not run: git");
            return Ok(None);
        }
        let repository = self.dir.join("repository");
        if !repository.exists() {
            eprintln!("making {}", repository.display());
            let unfinished = self.dir.join("unfinished-repository");
            let _ = fs::remove_dir_all(&unfinished);
            done(
                Command::new("git")
                    .args(["init", "--quiet"])
                    .arg(&unfinished),
            )?;
            let git = |arguments: &[&str]| {
                let mut git = Command::new("git");
                git.arg("-C").arg(&unfinished).args([
                    "-c",
                    "user.name=somebody",
                    "-c",
                    "user.email=somebody@localhost",
                ]);
                done(git.args(arguments))
            };
            let bytes = files::bytes(&self.dir, 300)
                .and_then(fs::read)
                .map_err(|error| error.to_string())?;
            for (commit, part) in bytes.chunks(75 << 20).enumerate() {
                let made = fs::write(unfinished.join(format!("bytes-{commit}")), part);
                made.map_err(|error| error.to_string())?;
                files::text(&unfinished, commit as u64 + 1).map_err(|error| error.to_string())?;
                git(&["add", "."])?;
                git(&["commit", "--quiet", "--message", "more"])?;
            }
            git(&["repack", "-a", "-d", "--quiet"])?;
            fs::rename(&unfinished, &repository).map_err(|error| error.to_string())?;
        }
        Ok(Some(path(&repository)))
    }

    fn without_a_loader(&self) -> Result<Option<String>, String> {
        if !is_there("go") {
            eprintln!("not run: a static Go program (there is no go)");
            return Ok(None);
        }
        let program = self.dir.join("static");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("unmodified/static.go");
        done(
            Command::new("go")
                .env("CGO_ENABLED", "0")
                .args(["build", "-o"])
                .arg(&program)
                .arg(source),
        )?;
        Ok(Some(path(&program)))
    }

    /// Runs a row both ways; what the table says of it.
    fn play(&self, row: &Row, budget_mib: u64) -> Result<String, String> {
        let plain = output(&mut to_command(&row.command))?;
        if !plain.status.success() {
            return Err(format!(
                "without softfault: {}: {}",
                plain.status,
                last_line(&plain.stderr)
            ));
        }
        let stats = self.dir.join("stats");
        let _ = fs::remove_file(&stats);
        let mut run = Command::new(&self.softfault);
        run.args([
            "run",
            "--memory",
            &format!("{budget_mib}M"),
            "--stats=json",
            "--stats-file",
        ]);
        run.arg(&stats).arg("--").args(&row.command);
        let ours = output(&mut run)?;
        if row.expected == Expected::Refused {
            let said = last_line(&ours.stderr);
            let is_refused = ours.status.code() == Some(REFUSED) && said.contains("no loader");
            return match is_refused {
                true => Ok(format!("none: \"{said}\" | | | | not run")),
                false => Err(format!("it was not refused: {}: {said}", ours.status)),
            };
        }
        if !ours.status.success() {
            return Err(format!("{}: {}", ours.status, last_line(&ours.stderr)));
        }
        if answer(row, &plain) != answer(row, &ours) {
            return Err("its output differs".into());
        }
        let text = fs::read_to_string(&stats).map_err(|error| format!("no statistics: {error}"))?;
        let sum = Sum::of(&text)?;
        let declined: Vec<_> = sum
            .declined
            .iter()
            .map(|(why, count)| format!("{why} {count}"))
            .collect();
        let share = sum.taken as f64 / (sum.taken + sum.large_declined).max(1) as f64;
        match row.expected {
            Expected::Declined(why) if sum.taken > 0 || !sum.declined.contains_key(why) => {
                Err(format!("{} bytes taken, declined: {declined:?}", sum.taken))
            }
            Expected::Taken if share < LEAST_TAKEN || sum.handed_back > 0 => Err(format!(
                "{:.0} % taken, {} mappings handed back, declined: {declined:?}",
                share * 100.0,
                sum.handed_back
            )),
            _ => Ok(format!(
                "{:.0} % of {} MiB | {} | {} | {} | equal",
                share * 100.0,
                (sum.taken + sum.large_declined) / MIB,
                declined.join(", "),
                sum.read / MIB,
                sum.peak.div_ceil(MIB),
            )),
        }
    }
}

/// The statistics of all processes of a row.
#[derive(Default)]
struct Sum {
    taken: u64,
    handed_back: u64,
    /// Bytes that were declined of files that are large enough.
    large_declined: u64,
    /// Mappings by reason.
    declined: BTreeMap<String, u64>,
    read: u64,
    /// Of the process that had most.
    peak: u64,
}

impl Sum {
    fn of(text: &str) -> Result<Self, String> {
        let mut sum = Self::default();
        for line in text.lines() {
            let process: Value =
                serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            sum.taken += number(&process["taken"]["bytes"]);
            sum.handed_back += number(&process["handed_back"]["mappings"]);
            sum.read += number(&process["bytes_read"]);
            sum.peak = sum.peak.max(number(&process["peak_bytes"]));
            for (why, of) in process["declined"].as_object().into_iter().flatten() {
                *sum.declined.entry(why.clone()).or_default() += number(&of["mappings"]);
                if !["too_small", "not_regular"].contains(&why.as_str()) {
                    sum.large_declined += number(&of["bytes"]);
                }
            }
        }
        Ok(sum)
    }
}

/// The answer of a program. db_bench prints its times too: of its output, how many keys it has found. RocksDB verifies the checksum of
/// each block that it reads, and would not find what is in a wrong one.
fn answer(row: &Row, output: &Output) -> Vec<u8> {
    if row.command[0] != "db_bench" {
        return output.stdout.clone();
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text
        .rsplit_once('(')
        .map(|(_, found)| found.trim().to_owned());
    found.unwrap_or(text).into_bytes()
}

fn rocks_arguments(benchmarks: &str, rocks: &str, budget_mib: u64) -> Vec<String> {
    vec![
        format!("--benchmarks={benchmarks}"),
        format!("--db={rocks}"),
        format!("--num={}", 5 * budget_mib * 1024),
        "--value_size=1000".into(),
        "--compression_type=none".into(),
        "--seed=1".into(),
        "--verify_checksum=1".into(),
    ]
}

pub fn to_command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn output(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output();
    output.map_err(|error| format!("{command:?}: {error}"))
}

pub fn done(command: &mut Command) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}")),
    }
}

fn is_there(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

pub fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().last().unwrap_or_default().to_owned()
}
