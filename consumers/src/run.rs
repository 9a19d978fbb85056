//! One run of a program.

use crate::cgroup::Cgroup;
use crate::interrupt;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The time of one run, and its answer.
#[derive(Debug, Clone, Default)]
pub struct Took {
    /// `None`: it was given up, or was killed.
    pub seconds: Option<f64>,
    pub answer: Vec<u8>,
    /// How it ended, where that was neither its own end nor the end of its time or memory.
    pub failed: Option<ExitStatus>,
    /// Of the kernel and of the program.
    pub processor: f64,
    pub read_mib: u64,
    pub peak_mib: u64,
    /// Of its memory cgroup, in bytes, page cache included.
    pub cgroup_peak: Option<u64>,
    /// Its standard error.
    pub said: String,
    /// The bytes that softfault says it served: bytes of its engines' reads, of small maps, and of windows that
    /// the kernel served.
    pub served: u64,
}

/// A limit that changes while the program runs.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub bytes: u64,
    /// After so long, so many.
    pub then: Option<(Duration, u64)>,
}

/// Runs it, within a memory cgroup if there is a limit, and gives it up after a while.
pub fn run(mut command: Command, limit: Option<Limit>, timeout: Duration) -> Result<Took, String> {
    let group = limit.map(|limit| Cgroup::new(limit.bytes)).transpose()?;
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null());
    command.env("SOFTFAULT_STATS", "1");
    if let Some(group) = &group {
        let tasks = group.tasks();
        // SAFETY: opens, writes and closes a file, between fork and exec.
        unsafe { command.pre_exec(move || std::fs::write(&tasks, "0")) };
    }
    let begun = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let (mut out, mut err) = (
        child.stdout.take().expect("piped"),
        child.stderr.take().expect("piped"),
    );
    let out = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.read_to_end(&mut bytes);
        bytes
    });
    let err = thread::spawn(move || {
        let mut text = String::new();
        let _ = err.read_to_string(&mut text);
        text
    });
    let mut then = limit.and_then(|limit| limit.then);
    let mut killed = false;
    let (status, usage) = loop {
        if let Some(ended) = wait(child.id() as i32)? {
            break ended;
        }
        let past = begun.elapsed();
        if let Some((when, bytes)) = then
            && past >= when
        {
            // The kernel may refuse for as long as it cannot take as much back.
            if group.as_ref().expect("there is a limit").set(bytes).is_ok() {
                then = None;
            }
        }
        if (past >= timeout || interrupt::check().is_err()) && !killed {
            killed = true;
            // SAFETY: a child of ours that has not been waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(2));
    };
    let seconds = begun.elapsed().as_secs_f64();
    interrupt::check()?;
    let answer = out.join().unwrap_or_default();
    let said = err.join().unwrap_or_default();
    // ripgrep says 1 where it found nothing.
    let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) <= 1;
    // The kernel kills so, in a cgroup whose memory does not suffice.
    let out_of_memory =
        group.is_some() && libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    let failed = (!ended && !killed && !out_of_memory).then(|| ExitStatus::from_raw(status));
    if let Some(how) = failed
        && group.is_none()
    {
        return Err(format!("{command:?}: {how}: {said}"));
    }
    let time = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Took {
        seconds: ended.then_some(seconds),
        answer,
        failed,
        processor: time(usage.ru_utime) + time(usage.ru_stime),
        read_mib: usage.ru_inblock as u64 / 2048,
        peak_mib: usage.ru_maxrss as u64 / 1024,
        cgroup_peak: group.as_ref().and_then(Cgroup::peak),
        served: served(&said),
        said,
    })
}

/// Its end, if it has ended.
fn wait(child: i32) -> Result<Option<(i32, libc::rusage)>, String> {
    let mut status = 0;
    // SAFETY: numbers, of which zeros are valid ones; the call fills them.
    let (ended, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let ended = libc::wait4(child, &raw mut status, libc::WNOHANG, &raw mut usage);
        (ended, usage)
    };
    match ended {
        0 => Ok(None),
        -1 => Err(format!("wait4: {}", std::io::Error::last_os_error())),
        _ => Ok(Some((status, usage))),
    }
}

/// The statistics that softfault has printed at the program's exit.
fn served(said: &str) -> u64 {
    let lines = said
        .lines()
        .filter_map(|line| line.strip_prefix("softfault-stats:"));
    let fields = lines.flat_map(|line| line.split_whitespace());
    let of = |field: &str| {
        let (name, count) = field.split_once('=')?;
        let counts = ["bytes_read", "small_bytes", "switched_to_kernel_bytes"].contains(&name);
        counts.then(|| count.parse::<u64>().ok()).flatten()
    };
    fields.filter_map(of).sum()
}
