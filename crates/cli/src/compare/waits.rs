//! Waits for locks, in the shape of document 002's tables.

use super::pairs::{Pair, Sides};
use super::{plain, titled};
use crate::results::group::{Group, threads};
use crate::results::{Lock, RANGES, figure};
use std::collections::BTreeSet;

/// The locks' names for readers: as a heading, and before a metric.
const NAMES: &[(&str, &str, &str)] = &[
    ("mmap_lock_read", "mmap_lock, read", "Read Lock"),
    ("mmap_lock_write", "mmap_lock, write", "Write Lock"),
    ("vma_lock", "VMA locks", "VMA Lock"),
];

/// The tables of every pair whose rows have locks on both sides.
pub fn tables(sides: &Sides) -> String {
    let mut text = String::new();
    for pair in &sides.pairs {
        for lock in locks(pair) {
            let of = format!("{}, {}", sides.name(pair), threads(pair.before.key.threads));
            text += &lock_tables(pair, lock, &of);
        }
    }
    text
}

/// The locks that both sides tell of and that one has taken.
fn locks<'a>(pair: &'a Pair) -> BTreeSet<&'a str> {
    let (before, after) = (pair.before.locks_taken(), pair.after.locks_taken());
    let told =
        |group: &Group, lock: &str| group.lock_mean(lock, |lock| lock.count as f64).is_some();
    let mut locks: BTreeSet<&str> = before.union(&after).copied().collect();
    locks.retain(|lock| told(&pair.before, lock) && told(&pair.after, lock));
    locks
}

fn lock_tables(pair: &Pair, lock: &str, of: &str) -> String {
    let known = NAMES.iter().find(|(name, ..)| *name == lock);
    let (heading, metric) = known.map_or((lock, lock), |&(_, heading, metric)| (heading, metric));
    let mut metrics = plain(&["Metric", "Before (Avg)", "After (Avg)", "Change"], 1);
    let mut line = |name: &str, places: usize, (before, after): (f64, f64)| {
        let show = |value: f64| match places {
            0 => figure::whole(value.round() as u64),
            _ => format!("{value:.places$}"),
        };
        metrics.add_row([
            format!("{metric} {name}"),
            show(before),
            show(after),
            figure::change(before, after),
        ]);
    };
    line("Count", 0, both(pair, lock, |lock| lock.count as f64));
    line(
        "Total Wait (us)",
        0,
        both(pair, lock, |lock| lock.wait_total_us),
    );
    let mean = |lock: &Lock| lock.wait_total_us / lock.count.max(1) as f64;
    line("Avg Wait (us)", 2, both(pair, lock, mean));
    let longest = [&pair.before, &pair.after].map(|group| group.longest_wait_us(lock));
    line("Longest Wait (us)", 2, longest.into());
    let mut ranges = plain(&["Range (us)", "Before (Avg)", "After (Avg)", "Change"], 1);
    for (at, range) in RANGES.iter().enumerate() {
        let (before, after) = both(pair, lock, |lock| lock.wait_ranges[at] as f64);
        let change = match (before, after) {
            (0.0, 0.0) => "N/A".into(),
            _ => figure::change(before, after),
        };
        let [before, after] = [before, after].map(|n| figure::whole(n.round() as u64));
        ranges.add_row([range.to_string(), before, after, change]);
    }
    titled(&format!("Waits for {heading}: {of}"), &metrics)
        + &titled(
            &format!("Waiting Time Distribution of {heading}: {of}"),
            &ranges,
        )
}

fn both(pair: &Pair, lock: &str, value: impl Fn(&Lock) -> f64) -> (f64, f64) {
    let of = |group: &Group| group.lock_mean(lock, &value).unwrap_or(0.0);
    (of(&pair.before), of(&pair.after))
}
