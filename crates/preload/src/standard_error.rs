//! Lines on the standard error, as the program got it.

use crate::{call, decide};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::os::fd::RawFd;

/// Device and inode of the standard error as the program got it. Relaxed: set before it has threads.
static STANDARD_ERROR: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// When the library is loaded.
pub fn remember() {
    if let Some(stat) = decide::look(libc::STDERR_FILENO) {
        STANDARD_ERROR[0].store(stat.st_dev, Relaxed);
        STANDARD_ERROR[1].store(stat.st_ino, Relaxed);
    }
}

/// True if the standard error is still the same file. A program that has closed it may have a file of its own by that number.
pub fn is_same() -> bool {
    let known = STANDARD_ERROR.each_ref().map(|part| part.load(Relaxed));
    decide::look(libc::STDERR_FILENO).is_some_and(|stat| [stat.st_dev, stat.st_ino] == known)
}

/// Writes a line, where the standard error is still the same file. It neither waits for a reader nor is ended for want of one.
pub fn print_line(line: &str) {
    const FD: RawFd = libc::STDERR_FILENO;
    let mut ready = libc::pollfd {
        fd: FD,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: zeros are a valid one.
    let at_once: libc::timespec = unsafe { core::mem::zeroed() };
    let (number, no_mask) = (libc::SYS_ppoll, core::ptr::null::<libc::sigset_t>());
    // SAFETY: structures and bytes that are there; the calls are made past the hooks.
    unsafe {
        if is_same()
            && softfault::system_call!(number, &raw mut ready, 1, &raw const at_once, no_mask, 0)
                == 1
            && ready.revents == libc::POLLOUT
        {
            // Its reader may have gone since, and a file may have no room (RLIMIT_FSIZE).
            let _ = softfault::without_write_signals(|| {
                match softfault::system_call!(libc::SYS_write, FD, line.as_ptr(), line.len()) {
                    written @ 0.. => Ok(written),
                    _ => Err(call::errno()),
                }
            });
        }
    }
}
