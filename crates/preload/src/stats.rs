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

/// Mappings that were taken, and where they are.
fn mappings() -> [(&'static str, (u64, u64)); 3] {
    [
        ("taken", count::TAKEN.get()),
        ("malloc", count::BLOCKS.get()),
        ("handed_back", count::HANDED_BACK.get()),
    ]
}

/// The engine's figures, by their names in both forms.
fn of_engine(stats: &Stats) -> [(&'static str, u64); 10] {
    let swap = stats.swap.unwrap_or_default();
    [
        ("faults", stats.faults),
        ("bytes_read", stats.bytes_read),
        ("evicted", stats.evicted),
        ("resident_bytes", stats.resident_bytes),
        ("peak_bytes", stats.peak_bytes),
        ("budget_bytes", stats.budget_bytes),
        ("waited_ns", waited(stats)),
        ("failed_touches", stats.failed_touches),
        ("swapped_out_bytes", swap.pages_out * PAGE),
        ("swapped_in_bytes", swap.pages_in * PAGE),
    ]
}

/// The tree's figures: the name in the text, and in the object of JSON.
fn of_tree(tree: &TreeStats) -> [(&'static str, &'static str, u64); 4] {
    [
        ("share_bytes", "share_bytes", tree.share),
        ("tree_budget_bytes", "budget_bytes", tree.memory),
        ("tree_peak_bytes", "peak_bytes", tree.peak),
        ("tree_processes", "processes", tree.processes),
    ]
}

fn text(
    ended: bool,
    stats: Option<&Stats>,
    tree: Option<&TreeStats>,
    refused: Option<&str>,
) -> String {
    let mut text = String::new();
    let prefix = line_prefix();
    // Writing to a string does not fail.
    let _ = write!(text, "{prefix}:");
    for (name, (count, bytes)) in mappings() {
        let _ = write!(text, " {name}={count} {name}_bytes={bytes}");
    }
    let _ = writeln!(text, " time={:.3} ended={}", now(), u8::from(ended));
    for (name, why, (count, bytes)) in count::all_declined() {
        let _ = writeln!(
            text,
            "{prefix}: declined {name}={count} bytes={bytes} ({why})"
        );
    }
    if let Some(stats) = stats {
        let figures = of_engine(stats).map(|(name, figure)| format!(" {name}={figure}"));
        let _ = writeln!(text, "{prefix}:{}", figures.concat());
    }
    if let Some(tree) = tree {
        let figures = of_tree(tree).map(|(name, _, figure)| format!(" {name}={figure}"));
        let _ = writeln!(text, "{prefix}:{}", figures.concat());
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
    let object = |(count, bytes)| format!("{{\"mappings\":{count},\"bytes\":{bytes}}}");
    let member = |(name, counted)| format!("\"{name}\":{}", object(counted));
    let declined = count::all_declined();
    let declined: Vec<_> = declined
        .map(|(name, _, counted)| member((name, counted)))
        .collect();
    let _ = write!(
        text,
        "{{\"pid\":{},\"program\":{},\"time\":{:.3},\"ended\":{},{},\"declined\":{{{}}}",
        std::process::id(),
        quoted(&name()),
        now(),
        ended,
        mappings().map(member).join(","),
        declined.join(","),
    );
    if let Some(stats) = stats {
        for (name, figure) in of_engine(stats) {
            let _ = write!(text, ",\"{name}\":{figure}");
        }
    }
    if let Some(tree) = tree {
        let figures = of_tree(tree).map(|(_, name, figure)| format!("\"{name}\":{figure}"));
        let _ = write!(text, ",\"tree\":{{{}}}", figures.join(","));
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
