//! Other libraries that are loaded before the program's own, sanitizers, a virtual machine, a debugger: each works, or is
//! declined.

use crate::cases::Cases;
use crate::{
    assert_same, assert_same_but_told, compile, directory, preload_library, softfault_run, stats,
    text, ways,
};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A library that is somewhere on this machine; otherwise a line that says so.
fn library(name: &str) -> Option<PathBuf> {
    let said = Command::new("ldconfig").arg("-p").output();
    let said = said.map(|said| text(&said.stdout)).unwrap_or_default();
    let line = said.lines().find(|line| line.trim().starts_with(name));
    let found = line.and_then(|line| line.rsplit(" => ").next().map(PathBuf::from));
    if found.is_none() {
        softfault_skip::skipped("program", format_args!("there is no {name}"));
    }
    found
}

/// Runs a case of a program without softfault and both ways with it, beside a library.
fn same_beside(program: &Path, beside: &Path, case: &str) {
    let cases = Cases::get().expect("looked at before");
    let mut without = Command::new("env");
    without.arg(format!("LD_PRELOAD={}", beside.display()));
    let without = without.arg(program).arg(case).arg(&cases.data);
    let without = without.output().unwrap();
    for how in ways() {
        let written = cases.stats_file(&format!("beside-{how}"));
        let mut with = softfault_run();
        with.env("LD_PRELOAD", beside);
        let with = run(with, program, case, how, &written);
        let what = format!("{case} beside {}, {how}", beside.display());
        assert_eq!(text(&with.stdout), text(&without.stdout), "{what}");
        assert_eq!(with.status, without.status, "{what}");
        let all = stats::read(&written);
        assert!(all.last().is_some_and(|main| main.taken() > 0), "{what}");
    }
}

const OF_INTEREST: [&str; 2] = ["threads", "bare-forks"];

#[test]
fn an_allocator_that_maps_each_block() {
    let Some(cases) = Cases::get() else { return };
    let made = directory("beside").join("allocator.so");
    let Some(allocator) = compile("allocator.c", &made, &["-shared", "-fPIC"]) else {
        return;
    };
    for case in OF_INTEREST {
        same_beside(&cases.program, &allocator, case);
    }
}

#[test]
fn jemalloc() {
    let Some(cases) = Cases::get() else { return };
    let Some(library) = library("libjemalloc.so.2") else {
        return;
    };
    for case in OF_INTEREST {
        same_beside(&cases.program, &library, case);
    }
}

/// Where the kernel puts mappings at addresses of more chance than a sanitizer knows, its programs run now and then: without
/// chance, if that may be said here.
fn at_fixed_addresses(mut command: Command) -> Command {
    let fix = || {
        // SAFETY: takes a number.
        unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        Ok(())
    };
    // SAFETY: only a system call; nothing is allocated.
    unsafe { command.pre_exec(fix) };
    command
}

fn sanitized(kind: &str) -> Option<PathBuf> {
    let to = directory("beside").join(kind);
    let program = compile("cases.c", &to, &[&format!("-fsanitize={kind}")])?;
    // It may be compiled where it cannot run.
    let cases = Cases::get()?;
    let tried = at_fixed_addresses(Command::new(&program))
        .arg("again")
        .arg(&cases.data)
        .output();
    let runs = tried.as_ref().is_ok_and(|tried| tried.status.success());
    if !runs {
        softfault_skip::skipped(
            "program",
            format_args!("a program with -fsanitize={kind} does not run here: {tried:?}"),
        );
    }
    runs.then_some(program)
}

/// Runs a case of a program by `softfault run`.
fn run(mut with: Command, program: &Path, case: &str, how: &str, stats: &Path) -> Output {
    let cases = Cases::get().expect("looked at before");
    with.args([
        "--memory",
        "8M",
        "--faults",
        how,
        "--stats=json",
        "--stats-file",
    ]);
    with.arg(stats)
        .arg("--")
        .arg(program)
        .arg(case)
        .arg(&cases.data);
    with.output().unwrap()
}

#[test]
fn address_sanitizer() {
    let Some(cases) = Cases::get() else { return };
    let Some(program) = sanitized("address") else {
        return;
    };
    for case in ["threads", "forks", "handlers"] {
        let without = at_fixed_addresses(Command::new(&program))
            .arg(case)
            .arg(&cases.data)
            .output()
            .unwrap();
        for how in ways() {
            let written = cases.stats_file(&format!("asan-{how}"));
            let with = at_fixed_addresses(softfault_run());
            let with = run(with, &program, case, how, &written);
            assert_same(&with, &without, &format!("{case} {how}"));
            assert!(stats::read(&written).last().unwrap().taken() > 0, "{case}");
        }
    }
}

/// Runs a program that is declined as a whole, without softfault and both ways with it: a line names the reason.
fn is_declined(words: &[&str], reason: &str) {
    let cases = Cases::get().expect("looked at before");
    let arguments = [words, &["whole", cases.data.to_str().unwrap()]].concat();
    for how in ways() {
        let written = cases.stats_file(&format!("{reason}-{how}"));
        let mut without = at_fixed_addresses(Command::new(arguments[0]));
        let without = without.args(&arguments[1..]).output().unwrap();
        let mut with = at_fixed_addresses(softfault_run());
        with.args(["--memory", "8M", "--faults", how]);
        with.args(["--stats=json", "--stats-file"]).arg(&written);
        let with = with.arg("--").args(&arguments).output().unwrap();
        let stats = stats::read(&written);
        assert_same_but_told(&with, &without, &stats, how);
        assert!(text(&with.stderr).contains(reason), "{how}: {with:?}");
        let declined = stats[0].declined();
        assert_eq!(declined, [("no_engine".to_owned(), 1)], "{how}");
    }
}

#[test]
fn thread_sanitizer_is_declined() {
    if let Some(program) = sanitized("thread") {
        is_declined(&[program.to_str().unwrap()], "ThreadSanitizer");
    }
}

#[test]
fn valgrind_is_declined() {
    let Some(cases) = Cases::get() else { return };
    let program = cases.program.to_str().unwrap();
    // It may be there and not run: without the symbols of the loader, say.
    let tried = Command::new("valgrind").args(["-q", "true"]).output();
    if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
        let why = format_args!("there is no valgrind that runs: {tried:?}");
        softfault_skip::skipped("program", why);
        return;
    }
    is_declined(&["valgrind", "-q", program], "Valgrind");
    // A tool that replaces nothing.
    is_declined(&["valgrind", "-q", "--tool=none", program], "Valgrind");
}

/// A virtual machine with handlers for SIGSEGV and SIGBUS, alone and behind the library by which programs chain theirs.
#[test]
fn java_and_libjsig() {
    let Some(cases) = Cases::get() else { return };
    let to = directory("beside");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/Maps.java");
    let compiled = Command::new("javac")
        .arg("-d")
        .arg(&to)
        .arg(source)
        .output();
    if !compiled
        .as_ref()
        .is_ok_and(|compiled| compiled.status.success())
    {
        softfault_skip::skipped("java", format_args!("there is no javac: {compiled:?}"));
        return;
    }
    let java = |command: &mut Command| {
        command.args(["java", "-XX:+UseSerialGC", "-Xshare:auto", "-cp"]);
        command.arg(&to).arg("Maps").arg(&cases.data);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let without = java(&mut Command::new("env"));
    let said = Command::new("java")
        .args(["-XshowSettings:properties", "-version"])
        .output();
    let said = text(&said.unwrap().stderr);
    let home = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("java.home = "));
    let chains = Path::new(home.unwrap_or_default()).join("lib/libjsig.so");
    if !chains.is_file() {
        softfault_skip::skipped(
            "java",
            format_args!("in part: there is no {}", chains.display()),
        );
    }
    for (how, beside) in [("messages", None), ("signals", Some(&chains))] {
        if !ways().contains(&how) {
            continue;
        }
        let written = cases.stats_file(&format!("java-{how}"));
        let mut with = softfault_run();
        with.args(["--memory", "16M", "--faults", how]);
        with.args(["--stats=json", "--stats-file"]);
        if let Some(beside) = beside.filter(|beside| beside.is_file()) {
            with.env("LD_PRELOAD", beside);
        }
        assert_eq!(
            java(with.arg(&written).arg("--")),
            without,
            "{how} {beside:?}"
        );
        let all = stats::read(&written);
        assert!(
            all.last().is_some_and(|main| main.taken() > 0),
            "{how} {beside:?}"
        );
    }
}

/// The output of gdb, if there is one.
fn gdb(arguments: &[&str]) -> Option<String> {
    let mut gdb = Command::new("gdb");
    gdb.env("LC_ALL", "C")
        .args(["-nx", "-batch", "-iex", "set debuginfod enabled off"])
        .args(arguments);
    match gdb.stdin(Stdio::null()).output() {
        Ok(output) => Some(text(&output.stdout) + &text(&output.stderr)),
        Err(why) => {
            softfault_skip::skipped("gdb", format_args!("there is no gdb: {why}"));
            None
        }
    }
}

/// Addresses of the window of a file in a process, and which of its pages are there, or in the kernel's swap.
fn pages(process: u32, bytes: usize) -> (u64, Vec<bool>) {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    // The window is the only mapping that is as large, and that may be read alone.
    let mut found = None;
    for line in maps.lines().filter(|line| line.contains(" r--p ")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        if end - start >= bytes as u64 {
            found = Some(start);
        }
    }
    let start = found.expect("a window");
    let mut words = vec![0; bytes / 4096 * 8];
    let file = std::fs::File::open(format!("/proc/{process}/pagemap")).unwrap();
    file.read_exact_at(&mut words, start / 4096 * 8).unwrap();
    let there = |word: &[u8]| u64::from_ne_bytes(word.try_into().unwrap()) >> 62 != 0;
    (start, words.chunks(8).map(there).collect())
}

#[test]
fn a_debugger_attaches() {
    let Some(cases) = Cases::get() else { return };
    let made = directory("beside").join("workers");
    let Some(program) = compile("workers.c", &made, &[]) else {
        return;
    };
    let data = std::fs::read(&cases.data).unwrap();
    for how in ways() {
        let mut with = softfault_run();
        with.args(["--memory", "8M", "--faults", how, "--"]);
        with.arg(&program).arg("fill").arg(&cases.data);
        let mut child = with
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        let (start, there) = pages(child.id(), data.len());
        let [warm, cold] = [true, false].map(|there_is| {
            // Not the first, whose bytes need not be the file's alone.
            1 + there[1..]
                .iter()
                .position(|&there| there == there_is)
                .expect("such a page")
        });
        let look = |page: usize| format!("x/4xb {:#x}", start + page as u64 * 4096);
        let process = child.id().to_string();
        let shown = gdb(&[
            "-p",
            &process,
            "-ex",
            "info proc",
            "-ex",
            &look(warm),
            "-ex",
            &look(cold),
            "-ex",
            "detach",
        ]);
        child.stdin.take().unwrap().write_all(b".").unwrap();
        assert!(child.wait().unwrap().success(), "it goes on");
        let Some(shown) = shown else { return };
        if shown.contains("Operation not permitted") {
            softfault_skip::skipped("gdb", "this user may not attach here");
            return;
        }
        assert!(shown.contains(&format!("process {process}")), "{shown}");
        let bytes: Vec<_> = data[warm * 4096..][..4]
            .iter()
            .map(|byte| format!("{byte:#04x}"))
            .collect();
        assert!(
            shown.contains(&bytes.join("\t")),
            "{how}: {bytes:?} in {shown}"
        );
        let refused = format!(
            "Cannot access memory at address {:#x}",
            start + cold as u64 * 4096
        );
        assert!(shown.contains(&refused), "{how}: {refused} in {shown}");
    }
}

/// From the program's beginning to its end, with a breakpoint; signals by which faults are served are passed on.
#[test]
fn a_program_runs_under_a_debugger() {
    let Some(cases) = Cases::get() else { return };
    for how in ways() {
        let written = cases.stats_file(&format!("gdb-{how}"));
        let set = |name: &str, value: &str| format!("set environment {name} {value}");
        let environment = [
            set("LD_PRELOAD", preload_library().to_str().unwrap()),
            set("SOFTFAULT_MEMORY", "8M"),
            set("SOFTFAULT_RUN_FAULTS", how),
            set("SOFTFAULT_RUN_STATS", "json"),
            set("SOFTFAULT_RUN_STATS_FILE", written.to_str().unwrap()),
        ];
        let mut arguments = vec![];
        for line in environment.iter().map(String::as_str) {
            arguments.extend(["-ex", line]);
        }
        arguments.extend(["-ex", "handle SIGBUS nostop noprint pass"]);
        arguments.extend(["-ex", "set startup-with-shell off", "-ex", "break puts"]);
        arguments.extend([
            "-ex",
            "break printf",
            "-ex",
            "run",
            "-ex",
            "bt 1",
            "-ex",
            "delete",
            "-ex",
            "continue",
        ]);
        let (program, data) = (
            cases.program.to_str().unwrap(),
            cases.data.to_str().unwrap(),
        );
        arguments.extend(["--args", program, "whole", data]);
        let Some(shown) = gdb(&arguments) else { return };
        let without = Command::new(program)
            .args(["whole", data])
            .output()
            .unwrap();
        assert!(shown.contains("Breakpoint 1, "), "{how}: {shown}");
        assert!(
            shown.contains(text(&without.stdout).trim()),
            "{how}: {shown}"
        );
        // At its exit: a gdb that loses a thread of many then says no more.
        assert_eq!(stats::read(&written).last().unwrap().taken(), 1, "{how}");
    }
}
