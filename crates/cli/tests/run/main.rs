//! `softfault run`: programs in C use mappings as programs do, with softfault and without, and print the same.

#![allow(missing_docs)]

mod assurance;
mod beside;
mod blocked;
mod budget;
mod builds;
mod by_syscall;
mod calls;
mod cancel;
mod cases;
mod command;
mod denied;
mod dies;
mod documented;
mod drawn;
mod edges;
mod elsewhere;
mod exact;
mod exit_codes;
mod filter;
mod filtered;
mod library;
mod linked;
mod lives;
mod malloc;
mod moved;
mod no_room;
#[path = "../../../softfault/tests/nobody/mod.rs"]
mod nobody;
mod odd_calls;
mod own_names;
mod partly;
mod private;
mod programs;
mod refused;
mod reports;
mod reserve;
mod rights;
mod scene;
mod shares;
mod stats;
mod told;
mod tree;
mod unmapped;
mod unwritten;
mod variables;
mod writes;

use softfault_skip::skipped;
use stats::ProcessStats;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes of the file that the cases map: more than the budget, and no whole number of pages.
pub const BYTES: usize = (24 << 20) + 100;
pub const MEMORY: &str = "8M";

/// A directory of a test's own.
pub fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}"));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// A file of bytes that differ from page to page.
pub fn file(directory: &Path, bytes: usize) -> PathBuf {
    let path = directory.join("data");
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let words = (0..bytes.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let data: Vec<u8> = words.take(bytes).collect();
    std::fs::write(&path, data).unwrap();
    unwritten::wait(&path);
    path
}

/// A new named pipe in a directory.
pub fn pipe(directory: &Path) -> PathBuf {
    let pipe = directory.join("pipe");
    // Of an earlier run.
    let _ = std::fs::remove_file(&pipe);
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: a string that ends in zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o755) }, 0);
    pipe
}

/// Compiles a program; `None`, and a line that says so, where there is no compiler.
pub fn compile(source: &str, to: &Path, arguments: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/run")
        .join(source);
    let mut cc = Command::new("cc");
    cc.arg("-O1")
        .arg("-w")
        .args(arguments)
        .arg(source)
        .arg("-o")
        .arg(to);
    let compiled = cc.args(["-lpthread", "-ldl"]).output();
    match compiled {
        Ok(compiled) if compiled.status.success() => Some(to.to_owned()),
        Ok(compiled) => {
            let why = String::from_utf8_lossy(&compiled.stderr);
            assert!(!arguments.is_empty(), "this is plain C: {why}");
            skipped("program", format_args!("cc cannot compile this: {why}"));
            None
        }
        Err(why) => {
            skipped("cc", format_args!("there is no cc: {why}"));
            None
        }
    }
}

/// The library that was built with this test.
pub fn preload_library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libsoftfault_preload.so");
    assert!(
        library.is_file(),
        "{} is built with this test",
        library.display()
    );
    library
}

/// `softfault run`, with that library, and no other variable of softfault's.
pub fn softfault_run() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SOFTFAULT_") {
            command.env_remove(name);
        }
    }
    command.env("SOFTFAULT_PRELOAD", preload_library());
    command.arg("run");
    command
}

/// Has a command set and remove the variables that another sets and removes.
pub fn same_variables(of: &Command, to: &mut Command) {
    for (name, value) in of.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}

/// In which ways faults can be served here: by messages, where the kernel lets us serve its own, and by signals.
pub fn ways() -> &'static [&'static str] {
    static MESSAGES: OnceLock<Result<(), String>> = OnceLock::new();
    const WAYS: [&str; 2] = ["messages", "signals"];
    let messages = MESSAGES.get_or_init(|| {
        let engine = softfault::Engine::builder().faults(softfault::Faults::Messages);
        engine.build().map(drop).map_err(|why| why.to_string())
    });
    match messages {
        Ok(()) => &WAYS,
        Err(why) => {
            skipped("messages", why);
            &WAYS[1..]
        }
    }
}

/// True where faults can be messages; otherwise a line says that the test does not run.
pub fn has_messages() -> bool {
    ways().len() == 2
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that ends with this exit code and one line, which says why.
pub fn refuses(command: &mut Command, code: i32, why: &str) {
    let refused = command.output().unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(code), "{said}");
    assert!(said.contains(why), "{said:?} says {why:?}");
    assert_eq!(said.lines().count(), 1, "{said:?} is one line");
    assert_eq!(text(&refused.stdout), "", "the program did not run");
}

/// The end of a line about a file whose mappings were handed back.
pub const WAS_OPENED: &str = " is no longer under the budget: it was opened for writing\n";

/// The same, but for a line for each reason that is told for which one of the processes had mappings declined.
pub fn assert_same_but_told(with: &Output, without: &Output, stats: &[ProcessStats], what: &str) {
    const TOLD: [&str; 6] = [
        "open_for_writing",
        "file_may_change",
        "no_engine",
        "swap_full",
        "tables_full",
        "error",
    ];
    let said = text(&with.stderr);
    let is_told = |line: &&str| line.starts_with("softfault: ");
    let (told, said): (Vec<_>, Vec<_>) = said.split_inclusive('\n').partition(is_told);
    // A file that somebody has opened, once a process.
    let (opened, told): (Vec<_>, Vec<_>) =
        (told.into_iter()).partition(|line| line.ends_with(WAS_OPENED));
    let handed_back = stats.iter().filter(|stats| stats.handed_back() > 0);
    assert!(opened.len() <= handed_back.count(), "{what}: {opened:?}");
    let has_figures =
        |line: &str| line.contains(" MiB of swap are reserved for other memory; --swap DIR:SIZE");
    let mut full = told.iter().filter(|line| line.contains(": swap_full,"));
    assert!(full.all(|line| has_figures(line)), "{what}: {told:?}");
    let reason = |line: &str| {
        let reason = line.split_once(" is not under the budget: ");
        let (_, reason) = reason.unwrap_or_else(|| panic!("{what}: {line:?}"));
        reason.split(',').next().unwrap().to_owned()
    };
    let told: BTreeSet<_> = told.into_iter().map(reason).collect();
    let declined = stats.iter().flat_map(ProcessStats::declined);
    let declined = declined.map(|(name, _)| name);
    let expected: BTreeSet<_> = declined.filter(|name| TOLD.contains(&&**name)).collect();
    assert_eq!(told, expected, "{what}");
    let mut with = with.clone();
    with.stderr = said.concat().into_bytes();
    assert_same(&with, without, what);
}

/// Runs a command with softfault and these options: its output, and what its processes say in the file `written`, the first of them
/// last.
pub fn run_with(
    options: &[&str],
    command: &[&OsStr],
    written: &Path,
) -> (Output, Vec<ProcessStats>) {
    let _ = std::fs::remove_file(written);
    let mut with = softfault_run();
    with.args(["--memory", MEMORY, "--stats=json", "--stats-file"]);
    with.arg(written).args(options).arg("--").args(command);
    (with.output().unwrap(), stats::read(written))
}

/// Runs `command` without softfault and, for each way of faults, with it and these options: it prints the same and ends in the same
/// way. `check` gets the statistics of its processes.
pub fn same_each_way(
    directory: &Path,
    command: &[&OsStr],
    options: &[&str],
    check: impl Fn(&[ProcessStats], &str),
) {
    for how in ways() {
        same_way(directory, command, options, how, &check);
    }
}

/// The same in one way.
pub fn same_way(
    directory: &Path,
    command: &[&OsStr],
    options: &[&str],
    how: &str,
    check: impl Fn(&[ProcessStats], &str),
) {
    let (program, arguments) = command.split_first().expect("a program");
    let without = Command::new(program).args(arguments).output().unwrap();
    assert!(without.status.success(), "{without:?}");
    let written = directory.join(format!("{how}.stats"));
    let options = [&["--faults", how], options].concat();
    let (with, stats) = run_with(&options, command, &written);
    assert_same(&with, &without, how);
    check(&stats, how);
}

/// A case of a program that is compiled once for all of its cases: it prints the same each way as without softfault. It may take
/// large memory and, if `bytes` is given, a file of so many as its last argument. `check` gets the statistics of its first process.
pub fn same_case(
    source: &str,
    case: &str,
    (bytes, swap): (Option<usize>, &str),
    check: impl Fn(&ProcessStats, &str),
) {
    static PROGRAMS: Mutex<BTreeMap<String, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    let stem = source.trim_end_matches(".c");
    let program = {
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = || compile(source, &directory("programs").join(stem), &[]);
        let program = programs.entry(source.to_owned()).or_insert_with(compiled);
        program.clone()
    };
    let Some(program) = program else {
        return;
    };
    let directory = directory(&format!("{stem}-{case}"));
    let data = bytes.map(|bytes| file(&directory, bytes));
    let swap = format!("{}:{swap}", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    // A touch that waits for ever ends, too.
    let mut command: Vec<&OsStr> = vec!["timeout".as_ref(), "300".as_ref()];
    command.extend([program.as_ref(), OsStr::new(case)]);
    command.extend(data.as_deref().map(Path::as_os_str));
    same_each_way(&directory, &command, &options, |stats, how| {
        // Its children have ended before, and report too where they have its memory.
        check(stats.last().expect("a report"), how);
    });
}

pub fn assert_same(with: &Output, without: &Output, what: &str) {
    assert_eq!(text(&with.stderr), text(&without.stderr), "{what}");
    assert_eq!(text(&with.stdout), text(&without.stdout), "{what}");
    assert_eq!(with.status, without.status, "{what}");
}
