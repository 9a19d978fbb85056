//! A report of the statistics: lines of text, or a line of JSON.

use crate::options::{self, StatsForm};
use crate::program::{line_prefix, name};
use crate::tree::TreeStats;
use crate::{count, table};
use core::fmt::Write;
use core::time::Duration;
use softfault::{Engine, Stats};
use std::time::SystemTime;

const PAGE: u64 = crate::decide::PAGE as u64;

/// A report, the last one or one of a process that goes on; `None` if there is nothing to say. In a thread that is inside.
pub fn report(ended: bool) -> Option<String> {
    let form = options::get().stats?;
    // A thread that has ended may have left it locked.
    let table = table::lock_or_give_up();
    let engine = table.as_ref().and_then(|table| {
        let engine = table.inherited.as_ref().or(table.engine.as_ref());
        engine.cloned()
    });
    let refused = table.as_ref().and_then(|table| table.refused.clone());
    let tree = table.as_ref().and_then(|table| table.tree);
    // Another process may have the tree's page locked for a while.
    drop(table);
    let is_silent = count::TAKEN.get().0 == 0 && count::all_declined().next().is_none();
    if is_silent && engine.is_none() {
        return None;
    }
    let stats = engine.as_ref().map(Engine::stats);
    let tree = tree.and_then(|tree| Some(tree.stats(engine.as_ref()?)));
    let (stats, tree, refused) = (stats.as_ref(), tree.as_ref(), refused.as_deref());
    Some(match form {
        StatsForm::Text => text(ended, stats, tree, refused),
        StatsForm::Json => json(ended, stats, tree, refused),
    })
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
    ended: bool,
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
        u8::from(ended),
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
            "{prefix}: faults={} read_bytes={} evicted={} resident_bytes={} peak_bytes={} memory_bytes={} waited_ns={} failed={} swapped_out={} swapped_in={}",
            stats.faults,
            stats.bytes_read,
            stats.evicted,
            stats.resident_bytes,
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
    ended: bool,
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
        quoted(&name()),
        now(),
        ended,
        mappings(count::TAKEN.get()),
        mappings(count::BLOCKS.get()),
        mappings(count::HANDED_BACK.get()),
        declined.join(","),
    );
    if let Some(stats) = stats {
        let _ = write!(
            text,
            ",\"faults\":{},\"read_bytes\":{},\"evicted\":{},\"resident_bytes\":{},\"peak_bytes\":{},\"memory_bytes\":{},\"waited_ns\":{},\"failed\":{},\"swapped_out_bytes\":{},\"swapped_in_bytes\":{}",
            stats.faults,
            stats.bytes_read,
            stats.evicted,
            stats.resident_bytes,
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
