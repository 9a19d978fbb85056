//! Processes that work side by side, forked from one before its threads begin, and the page by which
//! they meet, shared by all of them.

use super::super::counters::{Blame, Counters};
use super::gang::{self, Member};
use super::peer::Peer;
use super::{Bench, STACK};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// How long the supervisor of a process sleeps between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// How long one waits at a meeting before it looks whether another has failed.
const PATIENCE: Duration = Duration::from_millis(100);

/// The state that the processes share.
struct Page {
    /// 1 when they may begin.
    go: AtomicU32,
    /// Set when the time is over, or somebody has failed.
    stop: AtomicBool,
    /// Set when somebody has failed: there are no more meetings.
    broken: AtomicBool,
    /// How many have come to the meeting.
    here: AtomicU32,
    /// Meetings that were complete.
    complete: AtomicU32,
    /// The decision of the last to come.
    over: AtomicBool,
    /// See [`Peer::began`].
    began: AtomicU64,
}

/// One process of several.
struct Process<'a> {
    member: Member<'a>,
    page: &'a Page,
    count: u32,
}

impl Peer for Process<'_> {
    fn member(&self) -> &Member<'_> {
        &self.member
    }

    fn meet(&self, last: &mut dyn FnMut() -> Result<bool, String>) -> Result<bool, String> {
        let page = self.page;
        // Acquire and Release: work done before a meeting is seen after it.
        let number = page.complete.load(Ordering::Acquire);
        if page.here.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
            let on = last()?;
            page.over.store(!on, Ordering::Relaxed);
            page.here.store(0, Ordering::Relaxed);
            page.complete.fetch_add(1, Ordering::Release);
            wake(&page.complete);
        }
        while page.complete.load(Ordering::Acquire) == number {
            if page.broken.load(Ordering::Relaxed) {
                return Ok(false);
            }
            wait(&page.complete, number);
        }
        Ok(!page.over.load(Ordering::Relaxed))
    }

    fn began(&self) -> &AtomicU64 {
        &self.page.began
    }
}

/// Forks as many processes as the job has threads, lets `work` run in each until the time is over, and waits for
/// them. Their maps and counts are their own; their final counts are in the job's slots.
pub fn run(bench: &Bench, work: impl Fn(&dyn Peer) -> Result<(), String>) -> Result<(), String> {
    let page = page().map_err(|e| format!("no page to share: {e}"))?;
    let mut children = Vec::new();
    for number in 0..bench.job.threads {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => child(bench, page, number, &work),
            pid if pid < 0 => {
                let error = io::Error::last_os_error();
                page.broken.store(true, Ordering::Relaxed);
                page.stop.store(true, Ordering::Relaxed);
                begin(page);
                return Err(format!("cannot fork: {error}"));
            }
            pid => children.push(pid),
        }
    }
    gang::measure(bench, STACK, Some(bench.job.seconds), |member| {
        begin(page);
        supervise(bench.counters, member, page, children[member.number])
    })
}

/// A thread of the parent's, for one process: passes on that the time is over, and sees it end.
fn supervise(counters: &Counters, member: &Member, page: &Page, pid: i32) -> Result<(), String> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is live; the child is this thread's to wait for.
        let ended = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
        if ended != 0 {
            if (ended, status) == (pid, 0) {
                return Ok(());
            }
            page.broken.store(true, Ordering::Relaxed);
            page.stop.store(true, Ordering::Relaxed);
            let told = counters.error().map(|(_, text)| text);
            let number = member.number;
            return Err(told.unwrap_or_else(|| match libc::WIFSIGNALED(status) {
                true => format!("process {number} died of signal {}", libc::WTERMSIG(status)),
                false => format!(
                    "process {number} has exit code {}",
                    libc::WEXITSTATUS(status)
                ),
            }));
        }
        if member.stopped() {
            page.stop.store(true, Ordering::Relaxed);
        }
        sleep(LOOK);
    }
}

fn child(
    bench: &Bench,
    page: &Page,
    number: usize,
    work: impl Fn(&dyn Peer) -> Result<(), String>,
) -> ! {
    // SAFETY: prctl with no pointers: a run that is given up takes its processes along.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let slot = &bench.counters.slots()[number];
    let peer = Process {
        member: Member::new(number, slot, &page.stop),
        page,
        count: bench.job.threads as u32,
    };
    while page.go.load(Ordering::Acquire) == 0 {
        wait(&page.go, 0);
    }
    let code = match work(&peer) {
        Ok(()) => 0,
        Err(text) => {
            bench.counters.fail(Blame::Run, &text);
            page.broken.store(true, Ordering::Relaxed);
            1
        }
    };
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

fn begin(page: &Page) {
    page.go.store(1, Ordering::Release);
    wake(&page.go);
}

/// A page of zeros, the first value of all its fields. It stays until the process ends.
fn page() -> io::Result<&'static Page> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, large and aligned enough, of zeros, for which all of the fields are valid.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            size_of::<Page>(),
            protection,
            flags,
            -1,
            0,
        );
        match NonNull::new(page.cast::<Page>()).filter(|_| page != libc::MAP_FAILED) {
            Some(page) => Ok(page.as_ref()),
            None => Err(io::Error::last_os_error()),
        }
    }
}

/// Sleeps while the word is `value`, for a while.
fn wait(word: &AtomicU32, value: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: PATIENCE.as_nanos() as _,
    };
    // SAFETY: word and time are live.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, &time) };
}

fn wake(word: &AtomicU32) {
    // SAFETY: the word is live.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
}
