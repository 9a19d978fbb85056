//! Softfault's own files cannot be written to: the page of a tree, reports, lines. The program ends as it does alone.

use crate::cases::Cases;
use crate::{
    MEMORY, assert_same, compile, directory, file, same_variables, softfault_run, stats, text, ways,
};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// No file may be longer, in the processes of [`limited`]: not the page of a tree, and not a file of [`full`].
const LIMIT: libc::rlim_t = 2048;

/// A case with softfault, and these options.
fn with(cases: &Cases, how: &str, options: &[&str], case: &str) -> Command {
    let mut with = softfault_run();
    with.args(["--faults", how]).args(options).arg("--");
    with.arg(&cases.program).arg(case).arg(&cases.data);
    with
}

fn without(cases: &Cases, case: &str) -> Output {
    let mut without = Command::new(&cases.program);
    without.arg(case).arg(&cases.data).output().unwrap()
}

/// With a limit on the size of files.
fn limited(command: &mut Command) -> &mut Command {
    let set = || {
        let limit = libc::rlimit {
            rlim_cur: LIMIT,
            rlim_max: LIMIT,
        };
        // SAFETY: the structure is live.
        match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: one system call.
    unsafe { command.pre_exec(set) }
}

/// A file to which nothing can be added within the limit, opened to append to it.
fn full(path: &Path) -> File {
    std::fs::write(path, vec![b'x'; 2 * LIMIT as usize]).unwrap();
    File::options().append(true).open(path).unwrap()
}

/// The same, but for a line on the standard error with these words.
fn assert_same_but_line(with: &Output, without: &Output, words: &[&str], what: &str) {
    let said = text(&with.stderr);
    let mut with = with.clone();
    with.stderr.clear();
    assert_same(&with, without, what);
    let is_line = said.starts_with("softfault: cases[") && said.lines().count() == 1;
    assert!(is_line, "{what}: {said:?}");
    for words in words {
        assert!(said.contains(words), "{what}: {said:?} says {words:?}");
    }
}

/// Runs a command among mounts of its own, which these lines of sh make: they run it in the end.
fn mounted(run: &Command, mount: &str) -> Option<Output> {
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", mount, "sh"]);
    unshare.arg(run.get_program()).args(run.get_args());
    same_variables(run, &mut unshare);
    match unshare.output() {
        Ok(run) if run.status.code() != Some(77) && run.status.code() != Some(1) => Some(run),
        refused => {
            let why = format_args!("nothing can be mounted here: {refused:?}");
            softfault_skip::skipped("root", why);
            None
        }
    }
}

fn assert_least(file: &Path, what: &str) {
    let all = stats::read(file);
    assert_eq!(all[0].taken(), 1, "{what}");
    let least = softfault::MIN_MEMORY as u64;
    assert_eq!(all[0].number(&["budget_bytes"]), least, "{what}");
    assert!(all[0].number(&["peak_bytes"]) <= least, "{what}");
}

/// Failed before: SIGXFSZ ended the program, and an empty file stayed.
#[test]
fn a_tree_s_page_that_may_not_be_made() {
    let Some(cases) = Cases::get() else { return };
    let without = without(cases, "whole");
    for how in ways() {
        let file = cases.stats_file("small-page");
        let stats_file = ["--stats=json", "--stats-file", file.to_str().unwrap()];
        let options = [&["--memory", "16M"], &stats_file[..]].concat();
        let mut run = with(cases, how, &options, "whole");
        let run = limited(&mut run)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let run = run.spawn().unwrap();
        let page = format!("-{}-", run.id());
        let run = run.wait_with_output().unwrap();
        let words = ["File too large", "8 MiB", "--memory-per-process"];
        assert_same_but_line(&run, &without, &words, how);
        assert_least(&file, how);
        let left = std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten();
        let left = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut left = left.filter(|name| name.starts_with("softfault-run-"));
        assert!(!left.any(|name| name.contains(&page)), "{how}");
    }
}

/// Failed before: the page was made with a hole, and the first store to it was a SIGBUS.
#[test]
fn a_tree_s_page_without_memory_for_it() {
    let Some(cases) = Cases::get() else { return };
    let without = without(cases, "whole");
    for how in ways() {
        for strict in [&[][..], &["--strict"]] {
            let file = cases.stats_file("full-page");
            let stats_file = ["--stats=json", "--stats-file", file.to_str().unwrap()];
            let options = [&["--memory", "16M"], &stats_file[..], strict].concat();
            let run = with(cases, how, &options, "whole");
            let mount = "mount -t tmpfs -o size=64k none /dev/shm || exit 77
                head -c 65536 /dev/zero >/dev/shm/full; exec \"$@\"";
            let Some(run) = mounted(&run, mount) else {
                return;
            };
            let words = ["No space left on device", "8 MiB", "--memory-per-process"];
            assert_same_but_line(&run, &without, &words, how);
            assert_least(&file, how);
        }
    }
}

/// Failed before: SIGXFSZ ended the program instead of its exit, or nothing said that the report is missing.
#[test]
fn a_report_that_cannot_be_written() {
    let Some(cases) = Cases::get() else { return };
    let without = without(cases, "whole");
    let file = cases.stats_file("report");
    let report = |file: &str, how: &str, words: &[&str]| {
        let options = ["--memory-per-process", MEMORY, "--stats-file", file];
        let run = limited(&mut with(cases, how, &options, "whole")).output();
        assert_same_but_line(&run.unwrap(), &without, words, how);
    };
    for how in ways() {
        let name = file.to_str().unwrap();
        drop(full(&file));
        report(name, how, &["report", name, "File too large"]);
        // There is room for a part of it.
        std::fs::write(&file, vec![b'x'; LIMIT as usize - 10]).unwrap();
        report(name, how, &["report", name, "10 of"]);
        report("/dev/full", how, &["/dev/full", "No space left on device"]);
    }
}

/// Failed before: SIGXFSZ, or SIGPIPE, ended the program instead of its exit.
#[test]
fn a_standard_error_that_cannot_be_written_to() {
    let Some(cases) = Cases::of_its_own("no-room") else {
        return;
    };
    let without = without(&cases, "whole");
    let full = || full(&cases.directory.join("error"));
    let closed = || std::io::pipe().unwrap().1;
    let own = ["--memory-per-process", MEMORY];
    let report = [&own[..], &["--stats"]].concat();
    for how in ways() {
        crate::unwritten::wait(&cases.data);
        let mut run = with(&cases, how, &report, "whole");
        let run = limited(&mut run).stderr(full()).output().unwrap();
        assert_same(&run, &without, &format!("a report, {how}"));
        let mut run = with(&cases, how, &report, "whole");
        let run = run.stderr(closed()).output().unwrap();
        assert_same(&run, &without, &format!("a report for nobody, {how}"));
        // The engine's own.
        let mut run = with(&cases, how, &own, "whole");
        let run = run.env("SOFTFAULT_STATS", "1").stderr(full());
        let run = limited(run).output().unwrap();
        assert_same(&run, &without, &format!("counters, {how}"));
        let mut run = with(&cases, how, &own, "whole");
        let run = run.env("SOFTFAULT_STATS", "1").stderr(closed()).output();
        assert_same(
            &run.unwrap(),
            &without,
            &format!("counters for nobody, {how}"),
        );
        // A line: the file is open for writing.
        let _writer = File::options().append(true).open(&cases.data).unwrap();
        let mut run = with(&cases, how, &own, "whole");
        let run = limited(&mut run).stderr(full()).output().unwrap();
        assert_same(&run, &without, &format!("a line, {how}"));
    }
}

/// Failed before: the program died of SIGBUS without a word.
#[test]
fn swap_on_a_full_disk() {
    let directory = directory("full-swap");
    let Some(program) = compile("dies.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 48 << 20);
    let place = directory.join("swap");
    std::fs::create_dir_all(&place).unwrap();
    let place = place.to_str().unwrap();
    let mount = format!("mount -t tmpfs -o size=16M none {place} || exit 77; exec \"$@\"");
    for how in ways() {
        let mut run = softfault_run();
        run.args(["--memory", MEMORY, "--faults", how, "--strict", "--swap"]);
        run.arg(format!("{place}:256M")).arg("--");
        run.arg(&program).arg("fills").arg(&data);
        let Some(run) = mounted(&run, &mount) else {
            return;
        };
        assert_eq!(run.status.signal(), Some(libc::SIGBUS), "{how}: {run:?}");
        let said = text(&run.stderr);
        assert_eq!(said.lines().count(), 1, "{how}: {said:?}");
        let words = format!("]: swap in {place:?}: No space left on device");
        assert!(said.contains(&words), "{how}: {said:?}");
    }
}
