//! Why a run over anonymous memory failed, where it was its swap: the disk that swap is on is full.
//!
//! A store to a map has no value that could be an error. A page that has neither memory nor a place in swap is a
//! SIGBUS, of which the process would die without a word; so a handler leaves one first. The library's
//! own handler, which is installed later, hands on to it the faults that it cannot serve.

use super::counters::{Blame, Counters};
use super::job::Swap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// The unit in which the library's swap takes space of a disk.
const CLUSTER: libc::off_t = 16 << 20;

/// The state of the handler: it allocates nothing.
static WATCHED: OnceLock<SwapWatch> = OnceLock::new();

/// Where the reason goes.
pub enum Tell {
    /// Into the shared counters: a signal ends the process, and its parent tells.
    Counters(&'static Counters),
    /// To stderr: exit code 1 ends the process.
    Stderr,
}

/// A swap that may be full. All fields immutable.
pub struct SwapWatch {
    tell: Tell,
    /// A file without a name where the swap is.
    probe: File,
    full: String,
    failed: String,
}

/// From now on a touch that cannot be served says so to `tell`; `None` where nothing swaps, or the directory takes no file:
/// then the engine will say so.
pub fn watch(swap: Option<&Swap>, tell: Tell) -> Option<&'static SwapWatch> {
    let swap = swap?;
    let probe = tempfile::tempfile_in(&swap.dir).ok()?;
    let dir = swap.dir.display();
    let watch = WATCHED.get_or_init(|| SwapWatch {
        tell,
        probe,
        full: format!("the swap in {dir} is full: no space left on the device"),
        failed: format!(
            "a page could neither stay in memory nor be swapped: SIGBUS (the swap is in {dir})"
        ),
    });
    // SAFETY: the handler calls nothing but system calls, and stores to atomics.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = on_sigbus as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
    Some(watch)
}

impl SwapWatch {
    /// True if the disk has no place for more of the swap.
    fn is_full(&self) -> bool {
        // SAFETY: fallocate on a descriptor that `probe` owns, with no pointer.
        let taken = unsafe { libc::fallocate(self.probe.as_raw_fd(), 0, 0, CLUSTER) };
        taken != 0 && softfault::errno::errno() == libc::ENOSPC
    }

    /// An error of the work, and that the swap is full, if it is.
    pub fn explain(&self, text: String) -> String {
        match self.is_full() {
            true => format!("{text}: {}", self.full),
            false => text,
        }
    }
}

extern "C" fn on_sigbus(_: libc::c_int) {
    if let Some(watch) = WATCHED.get() {
        let text = match watch.is_full() {
            true => &watch.full,
            false => &watch.failed,
        };
        match watch.tell {
            Tell::Counters(counters) => counters.fail(Blame::Run, text),
            Tell::Stderr => end_with(text),
        }
    }
    // The touch comes again, and the default action ends the process.
    // SAFETY: no handler involved.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Ends the process with an error.
fn end_with(text: &str) -> ! {
    for part in ["error: ", text, "\n"] {
        // SAFETY: the text is live. Both calls may be made by a handler of a signal.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: as above.
    unsafe { libc::_exit(1) }
}
