//! System calls that are denied, one by one and together (seccomp: EPERM and ENOSYS): the parts that still work, and
//! the error that names each call. Never a wrong byte, never a hang, and no signal where a call could have refused.

#[path = "../child/mod.rs"]
mod child;
#[path = "../files/mod.rs"]
mod files;
#[path = "../filter/mod.rs"]
mod filter;
mod work;

use libc::c_long;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use work::Since;

/// The outcome for a program that is denied a call from the start.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// All of it.
    Works,
    /// An error of the engine's builder that has this word.
    NoEngine(&'static str),
    /// An error with this word of each map of a file; all else works.
    NoFile(&'static str),
    /// An error of one step that has this word; the others work.
    NoStep(&'static str, &'static str),
}

use Outcome::{NoEngine, NoFile, NoStep, Works};

/// The calls, by name.
const CALLS: &[(&str, c_long, Outcome)] = &[
    ("process_madvise", libc::SYS_process_madvise, Works),
    ("statx", libc::SYS_statx, Works),
    ("preadv", libc::SYS_preadv, Works),
    ("preadv2", libc::SYS_preadv2, Works),
    ("pidfd_open", libc::SYS_pidfd_open, Works),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, Works),
    ("io_setup", libc::SYS_io_setup, Works),
    ("io_submit", libc::SYS_io_submit, Works),
    ("io_getevents", libc::SYS_io_getevents, Works),
    ("io_destroy", libc::SYS_io_destroy, Works),
    ("io_uring_setup", libc::SYS_io_uring_setup, Works),
    ("io_uring_enter", libc::SYS_io_uring_enter, Works),
    ("mincore", libc::SYS_mincore, Works),
    ("sigaltstack", libc::SYS_sigaltstack, Works),
    ("rt_sigpending", libc::SYS_rt_sigpending, Works),
    ("clock_gettime", libc::SYS_clock_gettime, Works),
    ("clock_nanosleep", libc::SYS_clock_nanosleep, Works),
    ("nanosleep", libc::SYS_nanosleep, Works),
    ("lseek", libc::SYS_lseek, Works),
    ("fallocate", libc::SYS_fallocate, Works),
    ("statfs", libc::SYS_statfs, Works),
    ("mremap", libc::SYS_mremap, Works),
    ("mlock", libc::SYS_mlock, Works),
    ("munlock", libc::SYS_munlock, Works),
    ("kcmp", libc::SYS_kcmp, Works),
    ("close_range", libc::SYS_close_range, Works),
    ("close", libc::SYS_close, Works),
    ("unshare", libc::SYS_unshare, Works),
    ("clone3", libc::SYS_clone3, Works),
    ("prlimit64", libc::SYS_prlimit64, Works),
    ("fadvise64", libc::SYS_fadvise64, Works),
    ("sync_file_range", libc::SYS_sync_file_range, Works),
    ("membarrier", libc::SYS_membarrier, Works),
    ("sched_yield", libc::SYS_sched_yield, Works),
    ("madvise", libc::SYS_madvise, NoEngine("madvise")),
    ("mprotect", libc::SYS_mprotect, NoEngine("mprotect")),
    ("pread64", libc::SYS_pread64, NoEngine("pread64")),
    (
        "rt_sigaction",
        libc::SYS_rt_sigaction,
        NoEngine("rt_sigaction"),
    ),
    (
        "rt_sigprocmask",
        libc::SYS_rt_sigprocmask,
        NoEngine("rt_sigprocmask"),
    ),
    (
        "userfaultfd",
        libc::SYS_userfaultfd,
        NoEngine("userfaultfd"),
    ),
    ("ioctl", libc::SYS_ioctl, NoEngine("userfaultfd")),
    ("newfstatat", libc::SYS_newfstatat, NoEngine("fstat")),
    ("pwritev", libc::SYS_pwritev, NoEngine("pwritev")),
    ("openat", libc::SYS_openat, NoEngine("open")),
    ("fcntl", libc::SYS_fcntl, NoFile("fcntl")),
    ("ftruncate", libc::SYS_ftruncate, NoEngine("ftruncate")),
    (
        "memfd_create",
        libc::SYS_memfd_create,
        NoStep("huge", "memfd_create"),
    ),
    ("clone", libc::SYS_clone, NoStep("fork", "")),
];

/// Those that hardened programs are known to deny.
const USUAL: &str = "process_madvise,madvise,statx,preadv,fallocate,pidfd_open";

/// The longest that a row may take: a hang is a failure.
const PATIENCE: Duration = Duration::from_secs(300);

/// How a row went: each step's result, and how the process ended.
#[derive(Debug)]
struct Row {
    steps: Vec<(String, String)>,
    end: String,
}

fn parse(scenario: &str) -> (Vec<c_long>, i32, Since) {
    let mut parts = scenario.split(' ');
    let names: Vec<&str> = parts.next().unwrap().split(',').collect();
    let number = |name: &&str| CALLS.iter().find(|(known, ..)| known == name).unwrap().1;
    let errno = parts.next().unwrap().parse().unwrap();
    let since = match parts.next().unwrap() {
        "start" => Since::TheStart,
        _ => Since::TheMaps,
    };
    (names.iter().map(number).collect(), errno, since)
}

fn run(test: &str, file: &File, names: &str, errno: i32, since: Since) -> Row {
    let since = match since {
        Since::TheStart => "start",
        Since::TheMaps => "maps",
    };
    let mut command = child::command(test, &format!("{names} {errno} {since}"));
    command
        .stdin(file.try_clone().unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let (out, end) = watch(child);
    let steps = out.lines().filter_map(|line| line.split_once(": "));
    let steps = steps.map(|(step, said)| (step.to_owned(), said.to_owned()));
    Row {
        steps: steps.collect(),
        end,
    }
}

/// Waits for a child and ends it if it hangs; returns its output, and how it ended.
fn watch(mut child: Child) -> (String, String) {
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let (mut words, mut errors) = (Vec::new(), Vec::new());
        let _ = out.read_to_end(&mut words);
        let _ = err.read_to_end(&mut errors);
        (words, errors)
    });
    let begun = Instant::now();
    let end = loop {
        match child.try_wait().unwrap() {
            Some(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => break format!("signal {signal}"),
                (None, Some(0)) => break "ok".to_owned(),
                (None, code) => break format!("status {}", code.unwrap_or(-1)),
            },
            None if begun.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                break "HANG".to_owned();
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let (words, errors) = read.join().unwrap();
    let mut words = String::from_utf8_lossy(&words).into_owned();
    if end != "ok" {
        words.push_str(&String::from_utf8_lossy(&errors));
    }
    (words, end)
}

/// If this process was started for a row: runs the row.
fn is_row() -> bool {
    let Some(scenario) = child::scenario() else {
        return false;
    };
    let (calls, errno, since) = parse(&scenario);
    work::run(&calls, errno, since);
    true
}

impl Row {
    fn errors(&self) -> impl Iterator<Item = &(String, String)> {
        self.steps
            .iter()
            .filter(|(_, said)| said.starts_with("error"))
    }

    /// How the step ended, if it came to it.
    fn said(&self, step: &str) -> Option<&str> {
        // The first is behind the name of the test.
        let is_it = |name: &str| name == step || name.ends_with(&format!(" {step}"));
        let found = self.steps.iter().find(|(name, _)| is_it(name));
        found.map(|(_, said)| &said[..])
    }

    #[track_caller]
    fn check(&self, of: &str, outcome: Outcome) {
        assert_eq!(self.end, "ok", "{of}: {:#?}", self.steps);
        let expects = |step: &str, word: &str| {
            let said = self.said(step).unwrap_or_default();
            let named = said.starts_with("error") && said.contains(word);
            assert!(named, "{of}: {step} said {said:?}");
        };
        match outcome {
            Works => {
                assert_eq!(self.errors().count(), 0, "{of}: {:#?}", self.steps);
                assert_eq!(self.said("end"), Some("ok"), "{of}");
            }
            NoEngine(word) => expects("build", word),
            NoFile(word) => {
                let steps = ["map", "map_copy", "map_other"];
                steps.iter().for_each(|step| expects(step, word));
                assert_eq!(self.errors().count(), 3, "{of}: {:#?}", self.steps);
                assert_eq!(self.said("end"), Some("ok"), "{of}");
            }
            NoStep(step, word) => {
                expects(step, word);
                assert_eq!(self.errors().count(), 1, "{of}: {:#?}", self.steps);
                assert_eq!(self.said("end"), Some("ok"), "{of}");
            }
        }
    }
}

/// From the start: it is done without, or a call that needs it is an error that names it. No touch ends in a signal.
#[test]
fn a_call_that_is_denied_from_the_start_is_named_or_done_without() {
    const TEST: &str = "a_call_that_is_denied_from_the_start_is_named_or_done_without";
    if is_row() {
        return;
    }
    let file = work::file();
    for &(name, _, outcome) in CALLS {
        // The parts that are done without may depend on the errno.
        let both = USUAL.split(',').any(|usual| usual == name) || name.starts_with("io_");
        let both = both || !matches!(outcome, Works);
        let errnos = [libc::EPERM, libc::ENOSYS];
        for &errno in &errnos[..if both { 2 } else { 1 }] {
            let row = run(TEST, &file, name, errno, Since::TheStart);
            row.check(&format!("{name}, errno {errno}"), outcome);
        }
    }
}

/// When all is mapped: then a touch may end in SIGBUS, which `map` could not foresee. But it ends, and nothing else
/// does: no wrong byte, no hang, no abort.
#[test]
fn a_call_that_is_denied_later_is_no_hang_and_no_wrong_byte() {
    const TEST: &str = "a_call_that_is_denied_later_is_no_hang_and_no_wrong_byte";
    if is_row() {
        return;
    }
    let file = work::file();
    let works = CALLS
        .iter()
        .map(|&(name, _, outcome)| (name, matches!(outcome, Works)));
    for (name, works) in works.filter(|(name, _)| *name != "madvise") {
        let row = run(TEST, &file, name, libc::EPERM, Since::TheMaps);
        let ends: &[&str] = if works { &["ok"] } else { &["ok", "signal 7"] };
        assert!(ends.contains(&&row.end[..]), "{name}: {row:#?}");
    }
}

#[test]
fn calls_that_are_denied_together_are_done_without_or_named() {
    const TEST: &str = "calls_that_are_denied_together_are_done_without_or_named";
    if is_row() {
        return;
    }
    let file = work::file();
    let all: Vec<_> = CALLS
        .iter()
        .filter(|(_, _, outcome)| matches!(outcome, Works))
        .map(|(name, ..)| *name)
        .collect();
    for errno in [libc::EPERM, libc::ENOSYS] {
        let row = run(TEST, &file, USUAL, errno, Since::TheStart);
        row.check("the usual ones", NoEngine("madvise"));
        let row = run(TEST, &file, &all.join(","), errno, Since::TheStart);
        row.check("all that can be done without", Works);
    }
}
