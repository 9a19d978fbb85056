//! A check in a process of its own: the child of a fork, whose answer comes back through a pipe.
//!
//! A seccomp filter may kill a thread for its call, and a fault that nobody serves kills the thread that touches; here
//! both are answers. Memory, descriptors and queues of the kernel end with the child.

use super::check::Tried;
use super::machine;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

const REPORT: &str = "report it as a bug of softfault, with this table";

/// How a child ended.
enum End {
    Signal(i32),
    /// By itself. After a panic the code is 1.
    Code(i32),
}

/// The result of `run`, in a child; the process has no other threads.
pub fn try_in_child(run: impl FnOnce() -> Tried) -> Tried {
    told(answer(run))
}

/// Its own answer; none if it could not be started, or has given none.
pub fn answer_of_child(run: impl FnOnce() -> Tried) -> Option<Tried> {
    answer(run).ok()?.ok()
}

fn told(answer: io::Result<Result<Tried, End>>) -> Tried {
    match answer {
        Ok(Ok(tried)) => tried,
        Ok(Err(End::Signal(signal))) => killed(signal),
        Ok(Err(End::Code(code))) => Tried::missing(
            format!("a process that tries it ends with code {code}, and without an answer"),
            REPORT,
        ),
        Err(e) => Tried::missing(
            format!("could not be tried: {e}"),
            "raise the limit on processes: ulimit -u unlimited, or pids.max of the cgroup, or pids.max of the cgroup",
        ),
    }
}

fn killed(signal: i32) -> Tried {
    let mend = match signal {
        libc::SIGSYS => machine::open_call("the call that it tries"),
        _ => REPORT.to_owned(),
    };
    Tried::missing(
        format!("a process that tries it is killed by signal {signal}"),
        mend,
    )
}

/// The answer, or how the child ended if it gave none.
fn answer(run: impl FnOnce() -> Tried) -> io::Result<Result<Tried, End>> {
    let (mut reading, writing) = pipe()?;
    // SAFETY: one thread, so no lock is held by another that the child would lack.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        drop(reading);
        let done = catch_unwind(AssertUnwindSafe(|| send(writing, &run())));
        // SAFETY: ends the process without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    drop(writing);
    let mut text = String::new();
    let read = reading.read_to_string(&mut text);
    // Where SIGCHLD is ignored the kernel reaps it, and how it ended is not known. Its answer is.
    let end = reap(child);
    read?;
    Ok(match serde_json::from_str(&text) {
        Ok(tried) => Ok(tried),
        Err(_) => Err(end?),
    })
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: fills both numbers.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new, so they are nobody else's.
    let [reading, writing] = ends.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
    Ok((reading, writing))
}

fn send(mut pipe: File, tried: &Tried) {
    let text = serde_json::to_vec(tried).expect("an answer is plain data");
    // A parent that went away wants no answer.
    let _ = pipe.write_all(&text);
}

/// Waits for the child.
fn reap(child: libc::pid_t) -> io::Result<End> {
    let mut status = 0;
    loop {
        // SAFETY: fills the number.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(match libc::WIFSIGNALED(status) {
        true => End::Signal(libc::WTERMSIG(status)),
        false => End::Code(libc::WEXITSTATUS(status)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn an_answer_comes_back() {
        let tried = try_in_child(|| Tried::slower("found", "mend").costing("costs"));
        assert_eq!(tried.state, State::Slower);
        assert_eq!(tried.found, "found");
        assert_eq!(tried.costs.as_deref(), Some("costs"));
        assert_eq!(tried.mend.as_deref(), Some("mend"));
    }

    #[test]
    fn a_death_is_an_answer() {
        let tried = try_in_child(|| {
            // SAFETY: ends this process, which is the test's own.
            unsafe {
                libc::signal(libc::SIGSYS, libc::SIG_DFL);
                libc::raise(libc::SIGSYS);
            }
            Tried::ok("outlived")
        });
        assert_eq!(tried.state, State::Missing);
        assert!(tried.found.contains("signal 31"), "{}", tried.found);
        assert!(tried.mend.unwrap().contains("seccomp"));
    }

    /// Failed before: the answer was that signal 0 had killed the process.
    #[test]
    fn a_panic_is_an_answer() {
        let tried = try_in_child(|| panic!("expected by this test"));
        assert_eq!(tried.state, State::Missing);
        let expected = "a process that tries it ends with code 1, and without an answer";
        assert_eq!(tried.found, expected);
        assert_eq!(tried.mend.as_deref(), Some(REPORT));
    }
}
