//! The statistics at exit: lines of text, or a line of JSON.

use crate::options::{self, Options, StatsForm};
use crate::tree::TreeStats;
use crate::{count, inside, table};
use core::fmt::Write;
use softfault::Stats;

const PAGE: u64 = crate::decide::PAGE as u64;

/// Writes it, if it is wanted.
pub fn write() {
    let options = options::get();
    let Some(form) = options.stats else {
        return;
    };
    // A process that has mapped no file has nothing to say.
    if count::TAKEN.get().0 == 0 && count::all_declined().next().is_none() {
        return;
    }
    let Some(inside) = inside::enter() else {
        return;
    };
    let table = table::lock_at_exit();
    let engine = table.as_ref().and_then(|table| {
        let inherited = table.inherited.clone();
        inherited.or_else(|| table.engine.clone())
    });
    let stats = engine.as_ref().map(softfault::Engine::stats);
    let refused = table.as_ref().and_then(|table| table.refused.clone());
    let tree = table.as_ref().and_then(|table| {
        let (tree, engine) = (table.tree.as_ref()?, engine.as_ref()?);
        Some(tree.stats(engine))
    });
    drop(table);
    core::mem::forget(engine);
    let text = match form {
        StatsForm::Text => text(stats.as_ref(), tree.as_ref(), refused.as_deref()),
        StatsForm::Json => json(stats.as_ref(), tree.as_ref(), refused.as_deref()),
    };
    put(options, text.as_bytes());
    drop(inside);
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

fn text(stats: Option<&Stats>, tree: Option<&TreeStats>, refused: Option<&str>) -> String {
    let mut text = String::new();
    let prefix = line_prefix();
    let (taken, taken_bytes) = count::TAKEN.get();
    let (blocks, blocks_bytes) = count::BLOCKS.get();
    let (back, back_bytes) = count::HANDED_BACK.get();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{prefix}: taken={taken} taken_bytes={taken_bytes} malloc={blocks} malloc_bytes={blocks_bytes} handed_back={back} handed_back_bytes={back_bytes}"
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

fn json(stats: Option<&Stats>, tree: Option<&TreeStats>, refused: Option<&str>) -> String {
    let mut text = String::new();
    let mappings = |(count, bytes)| format!("{{\"mappings\":{count},\"bytes\":{bytes}}}");
    let declined = count::all_declined();
    let declined = declined.map(|(name, _, counted)| format!("\"{name}\":{}", mappings(counted)));
    let declined: Vec<_> = declined.collect();
    let _ = write!(
        text,
        "{{\"pid\":{},\"program\":{},\"taken\":{},\"malloc\":{},\"handed_back\":{},\"declined\":{{{}}}",
        std::process::id(),
        quoted(&program()),
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
