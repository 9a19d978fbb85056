//! `--stats-every`: reports of processes that run.

use crate::stats::{self, ProcessStats};
use crate::{MEMORY, compile, directory, file, pipe, refuses, softfault_run, text, ways};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BYTES: usize = 24 << 20;

/// The program and its file; `None` where no program can be compiled.
fn scene(name: &str) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let directory = directory(name);
    let program = compile("reports.c", &directory.join("program"), &[])?;
    let data = file(&directory, BYTES);
    Some((directory, program, data))
}

/// Runs it, with reports in a file.
fn start(form: &str, how: &str, reports: &Path, program: &[&OsStr]) -> Child {
    let _ = std::fs::remove_file(reports);
    let mut run: Command = softfault_run();
    run.args(["--memory", MEMORY, "--faults", how, form]);
    run.args(["--stats-every", "0.02", "--stats-file"]);
    run.arg(reports).arg("--").args(program);
    run.stdin(Stdio::piped());
    run.stdout(Stdio::piped()).stderr(Stdio::null());
    run.spawn().unwrap()
}

/// The output of the two processes, up to the end of the pipe, which they close and go on; and the child's number.
fn said_by(program: &mut Child) -> u64 {
    let mut said = String::new();
    let mut output = program.stdout.take().unwrap();
    output.read_to_string(&mut said).unwrap();
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort();
    let ["0 1", child] = lines[..] else {
        panic!("{said}");
    };
    let child = child.strip_suffix(" 1").expect("the same bytes");
    child.parse().unwrap()
}

/// The reports of one process, in their order.
fn of(path: &Path, process: u64) -> Vec<ProcessStats> {
    let mut all = stats::read(path);
    all.retain(|report| report.number(&["pid"]) == process);
    all
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "a hang");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The files that the reporting thread has open, but for the files of a report.
fn open_in_reporter(process: u64) -> Vec<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let threads = threads.map(|thread| thread.unwrap().path());
    let reports = |thread: &PathBuf| {
        // Another may have ended.
        let name = std::fs::read_to_string(thread.join("comm"));
        name.is_ok_and(|name| name.trim_end() == "softfault-stats")
    };
    let mut reporters = threads.filter(reports);
    let reporter = reporters.next().expect("a thread reports");
    assert_eq!(reporters.next(), None);
    let open = std::fs::read_dir(reporter.join("fd")).unwrap();
    // One that is closed meanwhile has no link.
    let open = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let is_report = |file: &PathBuf| {
        file.ends_with("comm") || file.extension().is_some_and(|end| end == "json")
    };
    open.filter(|file| !is_report(file)).collect()
}

#[test]
fn processes_report_while_they_run_and_at_their_end() {
    let Some((directory, program, data)) = scene("reports") else {
        return;
    };
    for how in ways() {
        let reports = directory.join(format!("{how}.json"));
        let moved = directory.join(format!("{how}.old.json"));
        let mut parent = start(
            "--stats=json",
            how,
            &reports,
            &[program.as_ref(), data.as_ref()],
        );
        let child = said_by(&mut parent);
        let process = parent.id().into();
        let taken = |of: u64| if of == child { 1 } else { 2 };
        let is_there = |of_process: u64| {
            let all = of(&reports, of_process);
            assert!(!all.iter().any(ProcessStats::has_ended), "{how}");
            all.last().is_some_and(|last| {
                last.taken() == taken(of_process) && last.number(&["tree", "processes"]) == 2
            })
        };
        wait_until(|| [process, child].into_iter().all(is_there));
        // Those that follow are in another file.
        std::fs::rename(&reports, &moved).unwrap();
        wait_until(|| [process, child].into_iter().all(is_there));
        for process in [process, child] {
            assert_eq!(open_in_reporter(process), [] as [PathBuf; 0], "{how}");
        }
        // One is killed, the other ends.
        parent.kill().unwrap();
        drop(parent.stdin.take());
        assert_eq!(parent.wait().unwrap().signal(), Some(libc::SIGKILL));
        let is_last = |all: Vec<ProcessStats>| all.last().is_some_and(ProcessStats::has_ended);
        wait_until(|| is_last(of(&reports, child)));
        for process in [process, child] {
            let mut all = of(&moved, process);
            all.extend(of(&reports, process));
            let ends = all.iter().filter(|report| report.has_ended()).count();
            assert_eq!(ends, usize::from(process == child), "{how}");
            for pair in all.windows(2) {
                assert!(pair[0].time() <= pair[1].time(), "{how}");
                for figure in ["faults", "bytes_read", "evicted"] {
                    let [before, after] = [0, 1].map(|at: usize| pair[at].number(&[figure]));
                    assert!(before <= after, "{how}: {figure}");
                }
            }
            let last = all.last().unwrap();
            assert_eq!(last.taken(), taken(process), "{how}");
            assert!(last.number(&["bytes_read"]) >= BYTES as u64, "{how}");
            let [resident, peak] =
                ["resident_bytes", "peak_bytes"].map(|figure| last.number(&[figure]));
            assert!(0 < resident && resident <= peak, "{how}");
        }
    }
}

/// Those of which no mapping is taken: each says why, with the name that the program has.
#[test]
fn processes_whose_mappings_are_declined_report_too() {
    let Some((directory, program, data)) = scene("reports-declined") else {
        return;
    };
    for how in ways() {
        let reports = directory.join(format!("{how}.text"));
        let mut parent = start(
            "--stats",
            how,
            &reports,
            &[program.as_ref(), data.as_ref(), "writes".as_ref()],
        );
        let child = said_by(&mut parent);
        let process = parent.id().into();
        let is_there = |(of_process, mappings): (u64, u64)| {
            let text = std::fs::read_to_string(&reports).unwrap_or_default();
            let runs = format!("softfault: program[{of_process}]: taken=0 ");
            let declined = format!("softfault: program[{of_process}]: declined o_rdwr={mappings} ");
            let mut lines = text.lines();
            lines.any(|line| line.starts_with(&runs) && line.ends_with(" ended=0"))
                && lines.any(|line| line.starts_with(&declined))
        };
        wait_until(|| [(process, 2), (child, 1)].into_iter().all(is_there));
        drop(parent.stdin.take());
        assert!(parent.wait().unwrap().success());
    }
}

/// A process may be at its end for a while.
#[test]
fn nothing_follows_the_last_report() {
    let Some((directory, program, data)) = scene("reports-late") else {
        return;
    };
    for how in ways() {
        let reports = directory.join(format!("{how}.json"));
        let program = [program.as_ref(), data.as_ref(), "late".as_ref()];
        let mut process = start("--stats=json", how, &reports, &program);
        let has_ended = || (stats::read(&reports).last()).is_some_and(ProcessStats::has_ended);
        wait_until(has_ended);
        // Ten reports more, by a thread that went on.
        std::thread::sleep(Duration::from_millis(200));
        assert!(has_ended(), "{how}");
        let mut said = String::new();
        let mut output = process.stdout.take().unwrap();
        output.read_to_string(&mut said).unwrap();
        assert_eq!(said.len(), 1 << 18);
        assert!(process.wait().unwrap().success());
        let ends = stats::read(&reports)
            .iter()
            .filter(|report| report.has_ended())
            .count();
        assert_eq!(ends, 1, "{how}");
    }
}

#[test]
fn reports_in_a_file_are_text_if_no_form_is_given() {
    let Some((directory, program, data)) = scene("reports-text") else {
        return;
    };
    let reports = directory.join("text");
    let _ = std::fs::remove_file(&reports);
    let mut run = softfault_run();
    run.args(["--memory", MEMORY, "--stats-file"]).arg(&reports);
    run.arg("--").arg(program).arg(data).stdin(Stdio::null());
    assert!(run.output().unwrap().status.success());
    let text = std::fs::read_to_string(&reports).unwrap();
    let is_line = |line: &str| line.starts_with("softfault: program[") && line.contains("taken=2 ");
    assert!(text.lines().any(is_line), "{text}");
}

/// Failed before: the command waited for a reader, for ever.
#[test]
fn a_pipe_for_reports_that_nobody_reads_is_refused() {
    let pipe = pipe(&directory("reports-unread"));
    let mut run = softfault_run();
    run.arg("--stats-file").arg(pipe);
    refuses(
        run.args(["--", "echo", "ran"]),
        125,
        "nobody reads the pipe, or it is a socket",
    );
}

/// Failed before: the process waited at its exit for another reader, with all signals masked.
#[test]
fn a_reader_of_reports_that_goes_away_keeps_no_process_from_ending() {
    let Some((directory, program, data)) = scene("reports-left") else {
        return;
    };
    let pipe = pipe(&directory);
    let read = || {
        let mut options = File::options();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        options.open(&pipe).unwrap()
    };
    for how in ways() {
        for is_left in [true, false] {
            let mut reader = Some(read());
            let mut run = softfault_run();
            run.args(["--memory", MEMORY, "--faults", how, "--stats-file"]);
            run.arg(&pipe).arg("--").arg(&program).arg(&data);
            run.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = run.stderr(Stdio::piped()).spawn().unwrap();
            said_by(&mut process);
            if is_left {
                reader = None;
                // A child that another test starts just now has a copy of it until it executes its program.
                let is_read = || {
                    let mut options = File::options();
                    let options = options.write(true).custom_flags(libc::O_NONBLOCK);
                    options.open(&pipe).is_ok()
                };
                wait_until(|| !is_read());
            }
            drop(process.stdin.take());
            wait_until(|| process.try_wait().unwrap().is_some());
            let ended = process.wait_with_output().unwrap();
            assert_eq!(ended.status.code(), Some(0), "{how}: {ended:?}");
            // Of the parent and of its child.
            let said = text(&ended.stderr);
            let why = "nobody reads the pipe, or it is a socket\n";
            let lines = said.matches("the last report is not in ").count();
            let expected = if is_left { 2 } else { 0 };
            assert_eq!(
                (lines, said.matches(why).count()),
                (expected, expected),
                "{said}"
            );
            if let Some(mut reader) = reader {
                let mut reports = String::new();
                reader.read_to_string(&mut reports).unwrap();
                let last = reports.lines().filter(|line| line.ends_with(" ended=1"));
                assert_eq!(last.count(), 2, "{how}: {reports}");
            }
        }
    }
}
