//! `softfault run`: runs a program whose large file mappings softfault serves, by a preloaded library.
//!
//! The command puts its arguments into the environment, and replaces itself with the program (`exec`). So the exit status,
//! the signals and the terminal are the program's.

mod budget;
mod elf;
mod library;
mod manual;
mod not_begun;
mod patterns;
mod program;
mod rights;
mod signals;
// The library's own files: both read the same values, and have to have the same stamp.
#[path = "../../../preload/src/names.rs"]
mod names;
#[path = "../../../preload/src/no_reader.rs"]
mod no_reader;
#[path = "../../../preload/src/seconds.rs"]
mod seconds;
#[path = "../../../preload/src/stamp.rs"]
mod stamp;
mod tree;
mod variables;

use crate::error::Error;
use crate::{doctor, size};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
pub use manual::{Section, sections};
use program::{Program, SHELL};
use softfault::Reads;
use std::env::{remove_var, set_var, var_os};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Arguments of `run`.
#[derive(Args, Debug)]
#[command(after_help = manual::after_help())]
pub struct RunArgs {
    /// The memory budget of the program and its children: the bytes that their mappings may have in memory at a time
    /// [default: a quarter of the memory]
    #[arg(long, value_name = "SIZE", value_parser = budget::parse, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// A memory budget for each process, instead of one for all
    #[arg(long, value_name = "SIZE", value_parser = budget::parse, allow_hyphen_values = true, conflicts_with = "memory")]
    memory_per_process: Option<u64>,
    /// The smallest file whose mappings softfault takes, and the smallest anonymous mapping [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_hyphen_values = true)]
    min_size: Option<u64>,
    /// Take only files that match this pattern, with a slash by the whole path, without one by the file's name; may be repeated
    #[arg(long, value_name = "GLOB")]
    include: Vec<OsString>,
    /// Take no files that match this pattern, with a slash by the whole path, without one by the file's name; may be repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    /// Take files that other users could write to: you promise that no process writes to them meanwhile
    #[arg(long)]
    assume_immutable: bool,
    /// End a process if a mapping of a large file (with --anonymous: or large anonymous memory) cannot be taken. The exit
    /// code is 125, and a line on the standard error gives the reason
    #[arg(long)]
    strict: bool,
    /// Take large anonymous memory too, and large blocks of malloc; needs --swap
    #[arg(long)]
    anonymous: bool,
    /// Swap: the directory of a file for written private memory that does not fit the budget. The default size is four
    /// budgets
    #[arg(long, value_name = "DIR[:SIZE]")]
    swap: Option<OsString>,
    /// How faults are served [default: auto]
    #[arg(long, value_name = "HOW")]
    faults: Option<RunFaults>,
    /// How files are read: direct (past the kernel's page cache), cached (through it), or auto (depends on free memory)
    /// [default: auto]
    #[arg(long, value_name = "HOW")]
    reads: Option<Reads>,
    /// Write statistics of each process at exit, on the standard error: mappings taken and declined, and bytes read
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    stats: Option<StatsForm>,
    /// Also write a report each SECONDS seconds while the program runs; needs --stats-file
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_hyphen_values = true)]
    stats_every: Option<String>,
    /// Append the statistics to this file, in place of the standard error; as text without --stats=json
    #[arg(long, value_name = "FILE")]
    stats_file: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RunFaults {
    /// messages if the system allows them, or else signals
    Auto,
    /// Threads serve the faults of the program, and of the kernel in system calls
    Messages,
    /// Signals in the touching threads; system calls are wrapped
    Signals,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StatsForm {
    /// Lines of text
    Text,
    /// A line of JSON for each process
    Json,
}

/// Replaces this process with the program.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    set_variables(args)?;
    // Variables of the environment are checked like the options.
    variables::check()?;
    set_swap(args)?;
    budget::check(args)?;
    let stats_file = variables::said(variables::STATS_FILE);
    if stats_file.is_some() && variables::said(variables::STATS).is_none() {
        set(variables::STATS, "text".as_ref());
    }
    if stats_file.is_none() && variables::said(variables::STATS_EVERY).is_some() {
        return Err(Error::input("--stats-every needs --stats-file"));
    }
    let program = Program::find(&args.program[0]).map_err(|why| with_hint(why, args))?;
    program.can_be_preloaded()?;
    let library = library()?;
    if variables::said(variables::FAULTS).is_some_and(|how| how == "messages")
        && let Some((found, mend)) = doctor::no_messages()
    {
        let why = format_args!("--faults messages: {found} (to allow them: {mend})");
        return Err(not_begun::failed(why));
    }
    if let Some(file) = stats_file {
        let mut options = File::options();
        options.append(true).create(true);
        // A named pipe without a reader is an error, and no reason to wait.
        options.custom_flags(libc::O_NONBLOCK);
        options.open(&file).map_err(|why| {
            let why = no_reader::told(why);
            not_begun::failed(format_args!("--stats-file {}: {why}", file.display()))
        })?;
    }
    variables::tell_unknown();
    budget::tell_too_large(args);
    let mut preloaded = library.into_os_string();
    if let Some(others) = variables::said("LD_PRELOAD") {
        preloaded.push(":");
        preloaded.push(others);
    }
    set("LD_PRELOAD", &preloaded);
    set(stamp::VARIABLE, stamp::STAMP.as_ref());
    set("ASAN_OPTIONS", &asan_options());
    become_program(&program, &args.program)
}

/// The library that is loaded before the program's own, which takes this command's options.
pub fn library() -> Result<PathBuf, Error> {
    let library = library::find()?;
    library::fits(&library)?;
    Ok(library)
}

/// The absolute path of what an option or a variable names.
fn absolute(by: &str, path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|why| {
        let why = match why.kind() {
            io::ErrorKind::NotFound => "the current directory was removed".to_owned(),
            _ => why.to_string(),
        };
        Error::input(format_args!("{by} {}: {why}", path.display()))
    })
}

fn set(name: &str, value: &OsStr) {
    // SAFETY: this process has one thread.
    unsafe { set_var(name, value) };
}

/// Puts the options into the environment.
fn set_variables(args: &RunArgs) -> Result<(), Error> {
    let number = |name: &str, bytes: Option<u64>| {
        if let Some(bytes) = bytes {
            set(name, bytes.to_string().as_ref());
        }
    };
    number(budget::VARIABLE, args.memory.or(args.memory_per_process));
    match args.memory_per_process {
        // SAFETY: this process has one thread.
        Some(_) => unsafe { remove_var(tree::VARIABLE) },
        // Within another tree, one that says no budget of its own is a part of it.
        None if args.memory.is_none() && variables::said(tree::VARIABLE).is_some() => {}
        None => set(tree::VARIABLE, tree::name()?.as_os_str()),
    }
    number(variables::MIN_SIZE, args.min_size);
    patterns::put(variables::INCLUDE, "--include", &args.include)?;
    patterns::put(variables::EXCLUDE, "--exclude", &args.exclude)?;
    if args.assume_immutable {
        set(variables::ASSUME_IMMUTABLE, "1".as_ref());
    }
    if args.strict {
        set(variables::STRICT, "1".as_ref());
    }
    if args.anonymous {
        set(variables::ANONYMOUS, "1".as_ref());
    }
    if let Some(reads) = args.reads {
        set("SOFTFAULT_READS", reads.to_string().as_ref());
    }
    let word = |name: &str, value: Option<PossibleValue>| {
        if let Some(value) = value {
            set(name, value.get_name().as_ref());
        }
    };
    word(
        variables::FAULTS,
        args.faults.and_then(|how| how.to_possible_value()),
    );
    word(
        variables::STATS,
        args.stats.and_then(|form| form.to_possible_value()),
    );
    if let Some(seconds) = &args.stats_every {
        set(variables::STATS_EVERY, seconds.as_ref());
    }
    if let Some(file) = &args.stats_file {
        // The program may go elsewhere.
        let file = absolute("--stats-file", file)?;
        set(variables::STATS_FILE, file.as_os_str());
    }
    Ok(())
}

/// The text itself, which the library reads in the same way.
fn parse_seconds(text: &str) -> Result<String, &'static str> {
    match seconds::seconds(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(variables::WHY_NO_SECONDS),
    }
}

/// `--stats json` is `--stats`, and a program.
fn with_hint(why: Error, args: &RunArgs) -> Error {
    let name = args.program[0].to_string_lossy();
    match why {
        Error::NotBegun(code, why)
            if args.stats.is_some() && StatsForm::from_str(&name, false).is_ok() =>
        {
            Error::NotBegun(code, format!("{why}: did you mean --stats={name}?"))
        }
        why => why,
    }
}

/// Bytes of swap for each byte of the budget.
const TIMES_MEMORY: u64 = 4;
const SWAP: &str = "SOFTFAULT_SWAP";
/// A page.
const LEAST_SWAP: usize = 4096;

/// Puts the swap setting into the environment, from the option or from the environment.
fn set_swap(args: &RunArgs) -> Result<(), Error> {
    let said = match &args.swap {
        Some(swap) => Some(("--swap", swap.clone())),
        None => var_os(SWAP).map(|swap| (SWAP, swap)),
    };
    match said {
        Some((by, swap)) => set(SWAP, &swap_for_program(by, &swap)?),
        None if variables::said(variables::ANONYMOUS).is_some_and(|value| value == "1") => {
            return Err(Error::input("--anonymous needs --swap"));
        }
        None => {}
    }
    Ok(())
}

/// The swap setting with an absolute path, because the program may change its directory, and with a size, because a process
/// may begin with a part of the budget.
fn swap_for_program(by: &str, said: &OsStr) -> Result<OsString, Error> {
    let wrong = |why: String| Error::input(format_args!("{by}: {why}"));
    softfault::swap_of(said).map_err(wrong)?;
    let bytes = said.as_bytes();
    let colon = bytes.iter().rposition(|&byte| byte == b':');
    let (directory, size) = bytes.split_at(colon.unwrap_or(bytes.len()));
    let directory = absolute(by, Path::new(OsStr::from_bytes(directory)))?;
    if !directory.is_dir() {
        return Err(wrong(format!("{} is no directory", directory.display())));
    }
    if let Some(why) = doctor::no_swap(&directory) {
        return Err(not_begun::failed(format_args!("{by}: {why}")));
    }
    let mut swap = directory.into_os_string();
    match size.is_empty() {
        true => {
            let memory = budget::said().unwrap_or_else(softfault::default_memory) as u64;
            swap.push(format!(":{}", memory.saturating_mul(TIMES_MEMORY)));
        }
        false => {
            let digits = size
                .get(1..)
                .and_then(|size| core::str::from_utf8(size).ok());
            if digits
                .and_then(softfault::parse_bytes)
                .is_some_and(|bytes| bytes < LEAST_SWAP)
            {
                return Err(wrong("the size is less than a page".to_owned()));
            }
            swap.push(OsStr::from_bytes(size));
        }
    }
    Ok(swap)
}

/// AddressSanitizer's runtime ends a program if another library was loaded before it, unless this check is switched off. It
/// works after our library too.
fn asan_options() -> OsString {
    const ORDER: &str = "verify_asan_link_order";
    let mut options = var_os("ASAN_OPTIONS").unwrap_or_default();
    if options.to_string_lossy().contains(ORDER) {
        return options;
    }
    if !options.is_empty() {
        options.push(":");
    }
    options.push(ORDER);
    options.push("=0");
    options
}

/// Executes the program with these arguments, as the shell that started us would have.
fn become_program(program: &Program, arguments: &[OsString]) -> Result<(), Error> {
    let c_string = |text: OsString| {
        let made = CString::new(text.into_vec());
        made.map_err(|_| Error::input("an argument has a zero byte"))
    };
    let path = c_string(program.path().as_os_str().to_owned())?;
    let arguments: Result<Vec<_>, _> = arguments.iter().cloned().map(c_string).collect();
    let mut arguments = arguments?;
    signals::as_we_got_them();
    let mut why = execute(&path, &arguments);
    if why.raw_os_error() == Some(libc::ENOEXEC) {
        // A script without `#!`: /bin/sh runs it, as execvp(3) has it.
        Program::shell().can_be_preloaded()?;
        arguments.splice(..1, [SHELL.to_owned(), path]);
        why = execute(SHELL, &arguments);
    }
    let text = format!("{}: {why}", program.path().display());
    Err(match why.kind() {
        // The interpreter of a script, or the loader.
        io::ErrorKind::NotFound => not_begun::not_found(text),
        _ => not_begun::cannot_run(text),
    })
}

/// execv(3): returns only with an error.
fn execute(path: &CStr, arguments: &[CString]) -> io::Error {
    let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: strings that end in zero, in a list that ends in null.
    unsafe { libc::execv(path.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}
