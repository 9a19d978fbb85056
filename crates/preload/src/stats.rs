//! The statistics, at exit and while the program runs: lines of text, or a line of JSON.

use crate::options::{self, Options, StatsForm};
use crate::table::Table;
use crate::tree::TreeStats;
use crate::{count, inside, table};
use core::fmt::Write;
use core::time::Duration;
use softfault::Stats;
use std::time::SystemTime;

const PAGE: u64 = crate::decide::PAGE as u64;

const STACK: usize = 256 << 10;

/// When a report is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The process goes on.
    Running,
    /// It ends.
    End,
}

/// Writes the last report, if reports are wanted.
pub fn write_at_exit() {
    let Some(inside) = inside::enter() else {
        return;
    };
    write(Moment::End);
    drop(inside);
}

/// Starts the thread that writes reports while the program runs, if they are wanted and it is not there yet. All signals are masked
/// in the caller.
pub fn report_from_now_on(table: &mut Table) {
    let options = options::get();
    let (Some(_), Some(_), Some(every)) = (options.stats, &options.stats_file, options.stats_every)
    else {
        return;
    };
    if table.reports {
        return;
    }
    let thread = softfault::start_thread(c"softfault-stats", STACK, move || {
        // Its calls are softfault's.
        let _inside = inside::enter();
        if !has_own_descriptors() {
            return;
        }
        loop {
            std::thread::sleep(every);
            write(Moment::Running);
        }
    });
    // Without a thread there is the report at exit.
    table.reports = thread.map(drop).is_ok();
}

/// This thread leaves the program's table of descriptors, for an empty one: the program finds the number free that it has closed, and
/// its pipes end when it closes them. False where that cannot be.
fn has_own_descriptors() -> bool {
    let unshare = libc::CLOSE_RANGE_UNSHARE;
    // SAFETY: closes descriptors of a table that is this thread's alone.
    unsafe { softfault::system_call!(libc::SYS_close_range, 0, u32::MAX, unshare) == 0 }
}

/// Writes a report, if reports are wanted. In a thread that is inside.
fn write(moment: Moment) {
    let options = options::get();
    let Some(form) = options.stats else {
        return;
    };
    // A process that has mapped no file has nothing to say.
    if count::TAKEN.get().0 == 0 && count::all_declined().next().is_none() {
        return;
    }
    let table = match moment {
        Moment::Running => Some(table::lock()),
        Moment::End => table::lock_at_exit(),
    };
    let engine = table
        .as_ref()
        .and_then(|table| table.inherited.as_ref().or(table.engine.as_ref()));
    let stats = engine.map(softfault::Engine::stats);
    let refused = table.as_ref().and_then(|table| table.refused.clone());
    let tree = table.as_ref().and_then(|table| {
        let tree = table.tree.as_ref()?;
        Some(tree.stats(engine?))
    });
    // Whoever reads the report may wait for the table.
    drop(table);
    let text = match form {
        StatsForm::Text => text(moment, stats.as_ref(), tree.as_ref(), refused.as_deref()),
        StatsForm::Json => json(moment, stats.as_ref(), tree.as_ref(), refused.as_deref()),
    };
    put(options, text.as_bytes());
}

/// Seconds since 1970, in the clock's own time.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs_f64()
}

/// Nanoseconds that threads waited in faults.
fn waited(stats: &Stats) -> u64 {
    stats.waits.read.total_ns + stats.waits.folio.total_ns
}

/// Bytes that went to swap, and that came back.
fn swapped(stats: &Stats) -> (u64, u64) {
    let swap = stats.swap.unwrap_or_default();
    (swap.pages_out * PAGE, swap.pages_in * PAGE)
}

fn text(
    moment: Moment,
    stats: Option<&Stats>,
    tree: Option<&TreeStats>,
    refused: Option<&str>,
) -> String {
    let mut text = String::new();
    let prefix = line_prefix();
    let (taken, taken_bytes) = count::TAKEN.get();
    let (blocks, blocks_bytes) = count::BLOCKS.get();
    let (back, back_bytes) = count::HANDED_BACK.get();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{prefix}: taken={taken} taken_bytes={taken_bytes} malloc={blocks} malloc_bytes={blocks_bytes} handed_back={back} handed_back_bytes={back_bytes} time={:.3} ended={}",
        now(),
        u8::from(moment == Moment::End),
    );
    for (name, why, (count, bytes)) in count::all_declined() {
        let _ = writeln!(
            text,
            "{prefix}: declined {name}={count} bytes={bytes} ({why})"
        );
    }
    if let Some(stats) = stats {
        let _ = writeln!(
            text,
            "{prefix}: faults={} read_bytes={} evicted={} peak_bytes={} memory_bytes={} waited_ns={} failed={} swapped_out={} swapped_in={}",
            stats.faults,
            stats.bytes_read,
            stats.evicted,
            stats.peak_bytes,
            stats.memory_bytes,
            waited(stats),
            stats.failed_touches,
            swapped(stats).0,
            swapped(stats).1,
        );
    }
    if let Some(tree) = tree {
        let _ = writeln!(
            text,
            "{prefix}: share_bytes={} tree_memory_bytes={} tree_peak_bytes={} tree_processes={}",
            tree.share, tree.memory, tree.peak, tree.processes,
        );
    }
    if let Some(refused) = refused {
        let _ = writeln!(text, "{prefix}: no engine: {refused}");
    }
    text
}

fn json(
    moment: Moment,
    stats: Option<&Stats>,
    tree: Option<&TreeStats>,
    refused: Option<&str>,
) -> String {
    let mut text = String::new();
    let mappings = |(count, bytes)| format!("{{\"mappings\":{count},\"bytes\":{bytes}}}");
    let declined = count::all_declined();
    let declined = declined.map(|(name, _, counted)| format!("\"{name}\":{}", mappings(counted)));
    let declined: Vec<_> = declined.collect();
    let _ = write!(
        text,
        "{{\"pid\":{},\"program\":{},\"time\":{:.3},\"ended\":{},\"taken\":{},\"malloc\":{},\"handed_back\":{},\"declined\":{{{}}}",
        std::process::id(),
        quoted(&program()),
        now(),
        moment == Moment::End,
        mappings(count::TAKEN.get()),
        mappings(count::BLOCKS.get()),
        mappings(count::HANDED_BACK.get()),
        declined.join(","),
    );
    if let Some(stats) = stats {
        let _ = write!(
            text,
            ",\"faults\":{},\"read_bytes\":{},\"evicted\":{},\"peak_bytes\":{},\"memory_bytes\":{},\"waited_ns\":{},\"failed\":{},\"swapped_out_bytes\":{},\"swapped_in_bytes\":{}",
            stats.faults,
            stats.bytes_read,
            stats.evicted,
            stats.peak_bytes,
            stats.memory_bytes,
            waited(stats),
            stats.failed_touches,
            swapped(stats).0,
            swapped(stats).1,
        );
    }
    if let Some(tree) = tree {
        let _ = write!(
            text,
            ",\"tree\":{{\"share_bytes\":{},\"memory_bytes\":{},\"peak_bytes\":{},\"processes\":{}}}",
            tree.share, tree.memory, tree.peak, tree.processes,
        );
    }
    if let Some(refused) = refused {
        let _ = write!(text, ",\"no_engine\":{}", quoted(refused));
    }
    text.push_str("}\n");
    text
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The beginning of each line of text.
pub fn line_prefix() -> String {
    format!("softfault: {}[{}]", program(), std::process::id())
}

/// The name of the process.
fn program() -> String {
    if let Ok(name) = std::fs::read_to_string("/proc/self/comm") {
        return name.trim_end().to_owned();
    }
    // There may be no descriptor left. The thread's name is the program's, unless somebody gave it another.
    let mut name = [0_u8; 17];
    // SAFETY: fills 16 bytes.
    unsafe { softfault::system_call!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = core::ffi::CStr::from_bytes_until_nul(&name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// In one call: lines of several processes do not mix.
fn put(options: &Options, text: &[u8]) {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a path that ends in zero, and bytes that are there.
    unsafe {
        let fd = match &options.stats_file {
            Some(path) => libc::open(path.as_ptr(), flags, 0o666),
            None => libc::STDERR_FILENO,
        };
        if fd >= 0 {
            libc::write(fd, text.as_ptr().cast(), text.len());
        }
        if fd >= 0 && options.stats_file.is_some() {
            libc::close(fd);
        }
    }
}
