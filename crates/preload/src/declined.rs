//! Mappings that are declined: all are counted. One that an option would have had taken, or that something unexpected kept
//! from being taken, is told on the standard error, once for each reason. With `--strict` each ends the process that should
//! have been under the budget.

use crate::count::{self, Decline};
use crate::decide::Call;
use crate::leases::Written;
use crate::standard_error::print_line;
use crate::{fork, give, inside, mode, options, private, program, reports, table, take};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// softfault failed, as of env(1).
pub const FAILED: i32 = 125;

/// A mapping is the kernel's. In a thread that is not inside.
#[cold]
pub fn declined(why: Decline, call: &Call) {
    count::declined(why, call.bytes);
    let is_large = breaks_strict(why);
    let ends = options::get().strict && is_large;
    // Not for memory: who maps it may be an allocator with its lock held, and a new thread allocates.
    let reports = is_large && call.fd >= 0 && reports::are_to_begin();
    if !ends && !reports && !is_told(why) {
        return;
    }
    let Some(_inside) = inside::enter() else {
        return;
    };
    if !give::leave_stack() && !ends {
        return;
    }
    if reports {
        reports::begin_if_wanted();
    }
    let bit = 1 << why as u32;
    if ends || is_told(why) && TOLD.fetch_or(bit, Relaxed) & bit == 0 {
        print_line(&line(why, call, ends));
    }
    if ends {
        // Not by exit(3): handlers may wait for a lock of this thread.
        // SAFETY: ends the process.
        unsafe { libc::_exit(FAILED) };
    }
}

/// Reasons that were told, a bit each; in children of fork too. Relaxed: a bit is set once, and guards nothing.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// True for reasons that the program does not decide alone, and that would not be known without `--stats`.
fn is_told(why: Decline) -> bool {
    matches!(
        why,
        Decline::OpenForWriting
            | Decline::FileMayChange
            | Decline::NoEngine
            | Decline::SwapFull
            | Decline::TablesFull
            | Decline::Error
    )
}

/// False for memory that is not a large file's: small mappings, devices, reserved addresses, and mappings that the user has left out.
fn breaks_strict(why: Decline) -> bool {
    !matches!(
        why,
        Decline::TooSmall
            | Decline::SmallMapping
            | Decline::NotRegular
            | Decline::NoAccess
            | Decline::Excluded
    )
}

fn line(why: Decline, call: &Call, ends: bool) -> String {
    let mapping = match call.fd {
        ..0 => "anonymous memory".to_owned(),
        fd => match std::fs::read_link(format!("/proc/thread-self/fd/{fd}")) {
            // In one line, also if it has line breaks.
            Ok(path) => format!("{path:?}"),
            Err(_) => "a file".to_owned(),
        },
    };
    let (name, text) = why.shown();
    let how = match how(why) {
        Some(how) => format!("; {how}"),
        None => String::new(),
    };
    let ends = if ends { " (--strict)" } else { "" };
    let (prefix, mib) = (program::line_prefix(), call.bytes.div_ceil(1 << 20));
    format!("{prefix}: {mapping}, {mib} MiB, is not under the budget: {name}, {text}{how}{ends}\n")
}

/// The option that takes the mapping, or the obstacle.
fn how(why: Decline) -> Option<String> {
    Some(match why {
        Decline::OpenForWriting | Decline::FileMayChange => {
            "--assume-immutable takes it; use it only if no process writes to the file".to_owned()
        }
        Decline::PrivateWritable => "--swap DIR takes it".to_owned(),
        Decline::TablesFull => "raise --memory to take it".to_owned(),
        Decline::NoEngine if fork::is_in_parents_memory() => {
            "the process shares its parent's memory (CLONE_VM), or was made without the C library"
                .to_owned()
        }
        Decline::NoEngine => table::lock().refused.clone()?,
        Decline::Error if mode::has_few_descriptors() => {
            "RLIMIT_NOFILE is low, `ulimit -n 64` is enough".to_owned()
        }
        Decline::Error => table::lock().why_failed.clone()?,
        Decline::SwapFull => {
            let mut table = table::lock();
            let engine = take::engine_of_private(&mut table).ok()?;
            let all = private::swap_bytes(&engine.stats())?;
            let limit = mode::limit(libc::RLIMIT_FSIZE);
            if !private::fits_in_files(all, limit) {
                return Some(file_limit(limit));
            }
            let mib = |bytes: u64| bytes >> 20;
            format!(
                "{} of {} MiB of swap are reserved for other memory; --swap DIR:SIZE makes it larger",
                mib(table.private.promised()),
                mib(all)
            )
        }
        _ => return None,
    })
}

fn file_limit(limit: u64) -> String {
    format!(
        "RLIMIT_FSIZE, {limit} bytes, is less than the swap file's size: raise it (`ulimit -f`), or make swap smaller (--swap DIR:SIZE)"
    )
}

/// Memory that was taken was handed over, for the program has set this limit on the size of files. In a thread that is inside.
pub fn tell_of_file_limit(limit: u64) {
    let (prefix, why) = (program::line_prefix(), file_limit(limit));
    print_line(&format!(
        "{prefix}: memory is no longer under the budget: {why}\n"
    ));
}

/// Tells of a file that somebody has opened to write to it. In a thread that is inside, with no table locked.
pub fn tell_of_writer(written: Option<Written>) {
    let Some(Written { path, bytes }) = written else {
        return;
    };
    let file = path.map_or_else(|| "a file".to_owned(), |path| format!("{path:?}"));
    let (prefix, mib) = (program::line_prefix(), bytes.div_ceil(1 << 20));
    print_line(&format!(
        "{prefix}: {file}, {mib} MiB, is no longer under the budget: it was opened for writing\n"
    ));
}
