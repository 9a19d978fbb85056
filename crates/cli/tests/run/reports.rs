//! `--stats-every`: reports of processes that run.

use crate::stats::{self, ProcessStats};
use crate::{MEMORY, compile, directory, file, softfault_run, ways};
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The reports of one process, in their order.
fn of(path: &Path, process: u64) -> Vec<ProcessStats> {
    let mut all = stats::read(path);
    all.retain(|report| report.number(&["pid"]) == process);
    all
}

/// Waits for reports.
fn wait_for(path: &Path, process: u64, are_enough: impl Fn(&[ProcessStats]) -> bool) {
    while !are_enough(&of(path, process)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the thread that reports has open, but for the files of a report.
fn open_in_reporter(process: u64) -> Vec<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let threads = threads.map(|thread| thread.unwrap().path());
    let reports = |thread: &PathBuf| {
        let name = std::fs::read_to_string(thread.join("comm")).unwrap();
        name.trim_end() == "softfault-stats"
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
    let directory = directory("reports");
    let Some(program) = compile("reports.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 24 << 20);
    for how in ways() {
        let reports = directory.join(format!("{how}.json"));
        let _ = std::fs::remove_file(&reports);
        let mut run = softfault_run();
        run.args(["--memory", MEMORY, "--faults", how, "--stats=json"]);
        run.args(["--stats-every", "0.02", "--stats-file"]);
        run.arg(&reports).arg("--").arg(&program).arg(&data);
        run.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut parent = run.spawn().unwrap();
        // The pipe ends while both processes go on.
        let mut said = String::new();
        let mut output = parent.stdout.take().unwrap();
        output.read_to_string(&mut said).unwrap();
        let mut lines: Vec<_> = said.lines().collect();
        lines.sort();
        let ["0 1", child] = lines[..] else {
            panic!("{how}: {said}");
        };
        let child = child.strip_suffix(" 1").expect("the same bytes");
        let (process, child) = (parent.id().into(), child.parse().unwrap());
        for process in [process, child] {
            wait_for(&reports, process, |all| {
                assert!(!all.iter().any(ProcessStats::has_ended), "{how}: {process}");
                all.len() >= 3
            });
        }
        for process in [process, child] {
            assert_eq!(open_in_reporter(process), [] as [PathBuf; 0], "{how}");
        }
        // One is killed, the other ends.
        parent.kill().unwrap();
        drop(parent.stdin.take());
        assert_eq!(parent.wait().unwrap().signal(), Some(libc::SIGKILL));
        wait_for(&reports, child, |all| {
            all.last().is_some_and(ProcessStats::has_ended)
        });
        for process in [process, child] {
            let all = of(&reports, process);
            let ends = all.iter().filter(|report| report.has_ended()).count();
            assert_eq!(ends, usize::from(process == child), "{how}");
            let last = all.last().unwrap();
            let taken = if process == child { 1 } else { 2 };
            assert_eq!(last.taken(), taken, "{how}");
            assert_eq!(last.number(&["tree", "processes"]), 2, "{how}");
            for pair in all.windows(2) {
                assert!(pair[0].time() <= pair[1].time(), "{how}");
                for figure in ["faults", "read_bytes", "evicted"] {
                    let [before, after] = [0, 1].map(|at: usize| pair[at].number(&[figure]));
                    assert!(before <= after, "{how}: {figure}");
                }
            }
            assert!(last.number(&["read_bytes"]) >= 24 << 20, "{how}");
        }
    }
}
