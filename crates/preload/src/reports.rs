//! When reports of the statistics are written, and where to: the last one at exit, and others by a thread while the program runs.

use crate::options;
use crate::{call, fork, inside, no_reader, program, standard_error, stats};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use libc::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _};

const STACK: usize = 256 << 10;

/// The thread was started, or could not be. Relaxed: it guards nothing.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether a report is being written: nothing comes after the last one.
static STATE: AtomicU32 = AtomicU32::new(IDLE);
const IDLE: u32 = 0;
const WRITING: u32 = 1;
const ENDED: u32 = 2;

/// The last report that was written is not whole: the disk is full, say. Relaxed: used by whoever writes.
static IS_TORN: AtomicBool = AtomicBool::new(false);

/// Writes the last report, if reports are wanted.
pub fn write_last() {
    let options = options::get();
    if options.stats.is_none() {
        return;
    }
    let Some(_inside) = inside::enter() else {
        return;
    };
    // The other thread may be blocked in a write: wait up to one second.
    const TRIES: u32 = 1000;
    const PAUSE: Duration = Duration::from_millis(1);
    let is_last = || {
        begin(ENDED) || {
            std::thread::sleep(PAUSE);
            false
        }
    };
    if !(0..TRIES).any(|_| is_last()) {
        return;
    }
    let Some(text) = stats::report(true) else {
        return;
    };
    let Some(path) = &options.stats_file else {
        if !standard_error::is_same() {
            return;
        }
        // SAFETY: the number is not closed.
        let standard_error = unsafe { File::from_raw_fd(libc::STDERR_FILENO) };
        // There is no other place to tell of it.
        let _ = put(&standard_error, text);
        let _ = standard_error.into_raw_fd();
        return;
    };
    if let Err(why) = open(path).and_then(|file| put(&file, text)) {
        let prefix = program::line_prefix();
        standard_error::print_line(&format!(
            "{prefix}: the last report is not in {path:?}: {why}\n"
        ));
    }
}

/// True if the thread is to be started.
pub fn are_to_begin() -> bool {
    let options = options::get();
    options.stats_every.is_some()
        && options.stats.is_some()
        && options.stats_file.is_some()
        && !HAS_BEGUN.load(Ordering::Relaxed)
}

/// Starts the thread, if it is to be started. In a thread that is inside: all signals are masked in the new one, as they are here.
pub fn begin_if_wanted() {
    // A thread of a child that shares its parent's memory would end with the child, and the parent have none.
    if !are_to_begin() || fork::is_in_parents_memory() || HAS_BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    let thread = softfault::start_thread(c"softfault-stats", STACK, || {
        // Its calls are softfault's.
        let _inside = inside::enter();
        if has_own_descriptors() {
            write_while_running();
        } else {
            tell_of_none("close_range is refused");
        }
    });
    if let Err(why) = thread.map(drop) {
        tell_of_none(&why.to_string());
    }
}

/// In a child of fork, which has no such thread.
pub fn forked() {
    HAS_BEGUN.store(false, Ordering::Relaxed);
    STATE.store(IDLE, Ordering::Relaxed);
    IS_TORN.store(false, Ordering::Relaxed);
}

fn tell_of_none(why: &str) {
    let prefix = program::line_prefix();
    standard_error::print_line(&format!("{prefix}: no reports while it runs: {why}\n"));
}

/// This thread leaves the program's table of descriptors, for an empty one: the program finds the number free that it has closed, and
/// its pipes end when it closes them. False where that cannot be.
fn has_own_descriptors() -> bool {
    let unshare = libc::CLOSE_RANGE_UNSHARE;
    // SAFETY: closes descriptors of a table that is this thread's alone.
    unsafe { softfault::system_call!(libc::SYS_close_range, 0, u32::MAX, unshare) == 0 }
}

/// The loop of the thread, which has a table of descriptors of its own.
fn write_while_running() {
    let options = options::get();
    let (Some(every), Some(path)) = (options.stats_every, &options.stats_file) else {
        return;
    };
    // The process may be another user soon, or have another root.
    let mut last = open(path).ok();
    loop {
        std::thread::sleep(every);
        if !begin(WRITING) {
            return;
        }
        if let Some(text) = stats::report(false) {
            // Anew: somebody may have moved it away.
            last = open(path).ok().or(last);
            if let Some(file) = &last {
                // The standard error is not in this thread's table.
                let _ = put(file, text);
            }
        }
        // Release: the next writer sees whether the line is whole.
        STATE.store(IDLE, Ordering::Release);
    }
}

/// Begins to write a report; false while another writes, or after the last one.
fn begin(state: u32) -> bool {
    let (got, not) = (Ordering::Acquire, Ordering::Relaxed);
    STATE.compare_exchange(IDLE, state, got, not).is_ok()
}

/// The file for the reports. Of a named pipe neither this nor a write waits for a reader: at exit all signals are masked, and a
/// process that waits could only be killed.
fn open(path: &CStr) -> io::Result<File> {
    let flags: c_int =
        libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a path that ends in zero; a new descriptor is this file's alone.
    unsafe {
        let fd = libc::open(path.as_ptr(), flags, 0o666);
        match fd {
            0.. => Ok(File::from_raw_fd(fd)),
            _ => Err(no_reader::told(io::Error::last_os_error())),
        }
    }
}

/// In one call: lines of several processes do not mix.
fn put(file: &File, mut text: String) -> io::Result<()> {
    if IS_TORN.load(Ordering::Relaxed) {
        text.insert(0, '\n');
    }
    let (bytes, all) = (text.as_ptr().cast(), text.len());
    let write = || {
        // SAFETY: bytes that are there.
        let written = unsafe { libc::write(file.as_raw_fd(), bytes, all) };
        match usize::try_from(written).map_err(|_| call::errno()) {
            // A pipe that its reader leaves full.
            Err(libc::EAGAIN) => Ok(0),
            written => written,
        }
    };
    let written = softfault::without_write_signals(write).map_err(io::Error::from_raw_os_error)?;
    // Nothing was written: the line before is as it was.
    if written > 0 {
        IS_TORN.store(written < all, Ordering::Relaxed);
    }
    if written < all {
        let why = format!("there was room for {written} of {all} bytes");
        return Err(io::Error::other(why));
    }
    Ok(())
}
