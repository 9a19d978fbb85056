//! The parent's side of a run: a child in a cgroup of its own, watched until it ends, is given up, or a
//! signal asks for the end.

use super::counters::{Blame, Counters};
use super::done::Done;
use super::files;
use super::group::Group;
use super::job::Job;
use super::usage::Usage;
use crate::error::Error;
use crate::interrupt::Interrupt;
use softfault::clock::now_ns;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The first argument that a child is started with.
pub const CHILD_COMMAND: &str = "lab-child";

/// Bytes of a dead child's stderr that its error has.
const MOST_TOLD: usize = 4096;

/// How a run went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Wall clock of the measured part, until its last thread ended or was given up.
    pub elapsed_ns: u64,
    /// The work that was done.
    pub done: Done,
    /// The resources used meanwhile; `None` if the child died and took the figures with it.
    pub usage: Option<Usage>,
    /// The group's peak; of a run given up, before its limit was raised.
    pub peak_bytes: Option<u64>,
    /// Whether the child had to be killed.
    pub gave_up: bool,
    /// The error.
    pub error: Option<String>,
}

/// A child that is killed when nobody waits for it any more.
struct Guard<'a> {
    child: Child,
    /// The text that it writes to stderr. No pipe: nobody reads it meanwhile, and a full one would stop the child.
    stderr: File,
    group: Option<&'a Group>,
}

impl Guard<'_> {
    fn peak(&self) -> Option<u64> {
        self.group.and_then(Group::peak)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // A child stuck in reclaim dies when its limit is gone.
            if let Some(group) = self.group {
                group.raise();
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The least time for a check. How long it takes depends on the memory to be read, and not on how long the run was to last.
const CHECK: Duration = Duration::from_secs(60);

/// Runs `job` in `group` and calls `tick` ten times a second meanwhile. A child that has not ended after
/// `timeout` is killed; one whose run is over then, and that only checks what it did, has as long again, or [`CHECK`].
pub fn run(
    job: &Job,
    counters: &Counters,
    group: Option<&Group>,
    timeout: Duration,
    interrupt: &Interrupt,
    tick: &dyn Fn(),
) -> Result<Outcome, Error> {
    let stderr = files::in_memory(libc::MFD_CLOEXEC).map_err(Error::failed)?;
    let mut guard = Guard {
        child: spawn(&stderr).map_err(cannot_start)?,
        stderr,
        group,
    };
    if let Some(group) = group {
        group.add(guard.child.id()).map_err(Error::failed)?;
    }
    let mut stdin = guard.child.stdin.take().expect("stdin is a pipe");
    let text = serde_json::to_vec(job).expect("a job is plain data");
    // A child that died already is told by its status.
    let _ = stdin.write_all(&text);
    drop(stdin);

    let mut end = Instant::now() + timeout;
    let mut checks = false;
    let watch = Watch::new(&guard.child);
    let status = loop {
        interrupt.check()?;
        if let Some(status) = guard.child.try_wait().map_err(Error::failed)? {
            break status;
        }
        if Instant::now() >= end {
            if checks || !counters.finished() {
                return Ok(abandon(guard, job, counters));
            }
            checks = true;
            end += timeout.max(CHECK);
        }
        watch.wait(end);
        tick();
    };
    // The terminal's Ctrl-C reaches the child as well.
    interrupt.check()?;
    outcome(&guard, status, job, counters)
}

/// A child's end, and what it wrote.
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// The text that it wrote to stdout.
    pub stdout: Vec<u8>,
    /// The text that it wrote to stderr.
    pub stderr: Vec<u8>,
}

/// Runs `command`, another one of this program, to its end. A signal that asks for the end kills it, and so does the death of this process.
pub fn finish(command: &mut Command, interrupt: &Interrupt) -> Result<Ended, Error> {
    let mut spawn = || {
        let file = || files::in_memory(libc::MFD_CLOEXEC);
        let (stdout, stderr) = (file()?, file()?);
        let parent = std::process::id();
        let die_with_parent = move || {
            // SAFETY: prctl and getppid with no pointers.
            let orphan = unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::getppid() as u32 != parent
            };
            match orphan {
                true => Err(io::ErrorKind::BrokenPipe.into()),
                false => Ok(()),
            }
        };
        // SAFETY: only system calls; nothing is allocated.
        unsafe { command.pre_exec(die_with_parent) };
        command.stdin(Stdio::null());
        command
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?);
        let child = command.spawn()?;
        let guard = Guard {
            child,
            stderr,
            group: None,
        };
        Ok((guard, stdout))
    };
    interrupt.check()?;
    let (mut guard, stdout) = spawn().map_err(cannot_start)?;
    let watch = Watch::new(&guard.child);
    let status = loop {
        interrupt.check()?;
        if let Some(status) = guard.child.try_wait().map_err(Error::failed)? {
            break status;
        }
        watch.wait(Instant::now() + CHECK);
    };
    interrupt.check()?;
    let read = |file: &File| {
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    Ok(Ended {
        status,
        stdout: read(&stdout).map_err(Error::failed)?,
        stderr: read(&guard.stderr).map_err(Error::failed)?,
    })
}

/// This very program, even if its file was replaced meanwhile.
pub fn this_program() -> Command {
    Command::new("/proc/self/exe")
}

fn spawn(stderr: &File) -> io::Result<Child> {
    this_program()
        .arg(CHILD_COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(stderr.try_clone()?)
        .spawn()
}

fn cannot_start(error: io::Error) -> Error {
    Error::failed(format_args!("cannot start a child: {error}"))
}

/// The figures of a child that ended by itself.
fn outcome(
    guard: &Guard,
    status: ExitStatus,
    job: &Job,
    counters: &Counters,
) -> Result<Outcome, Error> {
    let error = match counters.error() {
        Some((Blame::Input, text)) => return Err(Error::Input(text)),
        Some((Blame::Run, text)) => Some(text),
        None if status.success() => None,
        None => Some(death(&guard.stderr, status)),
    };
    Ok(final_figures(guard, job, counters, error))
}

fn final_figures(guard: &Guard, job: &Job, counters: &Counters, error: Option<String>) -> Outcome {
    let usage = counters
        .finished()
        .then(|| counters.after().since(counters.before()));
    let started = counters.started();
    Outcome {
        elapsed_ns: started.map_or(0, |at| counters.ended().saturating_sub(at)),
        done: Done::of(counters, job.threads),
        usage,
        peak_bytes: guard.peak(),
        gave_up: false,
        error,
    }
}

/// Takes the figures of a child that does not end, and kills it.
fn abandon(guard: Guard, job: &Job, counters: &Counters) -> Outcome {
    let error = counters.error().map(|(_, text)| text);
    if counters.finished() {
        let unchecked = "it was not checked: that takes longer than --timeout".into();
        return final_figures(&guard, job, counters, error.or(Some(unchecked)));
    }
    let started = counters.started();
    let usage = Usage::of_child(guard.child.id()).filter(|_| started.is_some());
    let outcome = Outcome {
        elapsed_ns: started.map_or(0, |at| now_ns().saturating_sub(at)),
        done: Done::of(counters, job.threads),
        usage: usage.map(|usage| usage.since(counters.before())),
        peak_bytes: guard.peak(),
        gave_up: true,
        error,
    };
    drop(guard);
    outcome
}

fn death(stderr: &File, status: ExitStatus) -> String {
    // Its end: the reason is there.
    let mut told = vec![0; MOST_TOLD];
    let from = stderr
        .metadata()
        .map_or(0, |of| of.len())
        .saturating_sub(MOST_TOLD as u64);
    let read = stderr.read_at(&mut told, from).unwrap_or(0);
    let told = String::from_utf8_lossy(&told[..read]);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let how = match (status.signal(), status.code()) {
        (Some(libc::SIGKILL), _) => {
            "was killed (by the kernel, if its memory was too small)".into()
        }
        (Some(signal), _) => format!("died of signal {signal}"),
        (None, code) => format!("ended with code {}", code.unwrap_or(-1)),
    };
    match told.is_empty() {
        true => format!("the child {how}"),
        false => format!("the child {how}: {told}"),
    }
}

/// Waits for a child's end without spending time on it.
struct Watch(Option<OwnedFd>);

impl Watch {
    fn new(child: &Child) -> Self {
        // SAFETY: pidfd_open takes two numbers; the child is not reaped yet, so its id is its own.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        // SAFETY: the descriptor was just made and nobody else owns it.
        Self((fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Returns at the child's end, at a signal, at `end`, or after a tenth of a second.
    fn wait(&self, end: Instant) {
        let left = end.saturating_duration_since(Instant::now());
        let time = left
            .min(Duration::from_millis(100))
            .max(Duration::from_millis(1));
        let Some(fd) = &self.0 else {
            return std::thread::sleep(time.min(Duration::from_millis(10)));
        };
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one live pollfd.
        unsafe { libc::poll(&mut poll, 1, time.as_millis() as i32) };
    }
}
