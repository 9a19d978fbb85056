//! Waits for locks, in the shape of document 002's tables.

use super::pairs::{Pair, Sides};
use super::{plain, titled};
use crate::results::group::{Group, threads};
use crate::results::{Lock, RANGES, Row, figure};
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
            text += &lock_tables(pair, &lock, &of);
        }
    }
    text
}

/// The locks that both sides have and that were taken on one.
fn locks(pair: &Pair) -> BTreeSet<String> {
    let names = |group: &Group| -> BTreeSet<String> {
        let locks = group.runs.iter().filter_map(|row| row.locks.as_ref());
        locks.flat_map(|locks| locks.keys().cloned()).collect()
    };
    let taken = |name: &String| {
        let count = |group: &Group| figures(group, name, |lock| lock.count as f64);
        [&pair.before, &pair.after]
            .into_iter()
            .any(|group| count(group) > Some(0.0))
    };
    let (before, after) = (names(&pair.before), names(&pair.after));
    before
        .intersection(&after)
        .filter(|n| taken(n))
        .cloned()
        .collect()
}

fn lock_tables(pair: &Pair, lock: &str, of: &str) -> String {
    let known = NAMES.iter().find(|(name, ..)| *name == lock);
    let (heading, metric) = known.map_or((lock, lock), |&(_, heading, metric)| (heading, metric));
    let mut metrics = plain(&["Metric", "Before", "After", "Change"], 1);
    let mut line = |name: String, places: usize, value: fn(&Lock) -> f64| {
        let (before, after) = both(pair, lock, value);
        let show = |value: f64| match places {
            0 => figure::whole(value.round() as u64),
            _ => format!("{value:.places$}"),
        };
        metrics.add_row([
            name,
            show(before),
            show(after),
            figure::change(before, after),
        ]);
    };
    line(format!("{metric} Count"), 0, |lock| lock.count as f64);
    line(format!("{metric} Total Wait (us)"), 0, |lock| {
        lock.wait_total_us
    });
    line(format!("{metric} Avg Wait (us)"), 2, |lock| {
        lock.wait_total_us / lock.count.max(1) as f64
    });
    line(format!("{metric} Longest Wait (us)"), 2, |lock| {
        lock.wait_max_us
    });
    let mut ranges = plain(&["Range (us)", "Before", "After", "Change"], 1);
    for (at, range) in RANGES.iter().enumerate() {
        let (before, after) = both(pair, lock, |lock| lock.wait_ranges[at] as f64);
        let change = match (before, after) {
            (0.0, 0.0) => "N/A".into(),
            _ => figure::change(before, after),
        };
        let [before, after] = [before, after].map(|n| figure::whole(n.round() as u64));
        ranges.add_row([range.to_string(), before, after, change]);
    }
    titled(&format!("Waits for {heading}: {of}, medians"), &metrics)
        + &titled(
            &format!("Waiting Time Distribution of {heading}: {of}"),
            &ranges,
        )
}

fn both(pair: &Pair, lock: &str, value: impl Fn(&Lock) -> f64) -> (f64, f64) {
    let of = |group| figures(group, lock, &value).unwrap_or(0.0);
    (of(&pair.before), of(&pair.after))
}

/// The middle of a lock's figure over the runs.
fn figures(group: &Group, lock: &str, value: impl Fn(&Lock) -> f64) -> Option<f64> {
    group.median(|row: &Row| Some(value(row.locks.as_ref()?.get(lock)?)))
}
