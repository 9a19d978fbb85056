//! Waits, in the shape of document 002's tables: for locks, and the longest of a thread.

use super::cases::{Cases, Line};
use super::cells::{headings, with_changes};
use crate::results::group::Group;
use crate::results::row::{LONGEST_WAITS, Lock, RANGES};
use crate::table::Table;
use crate::table::figure::{count, show};
use std::collections::BTreeSet;

/// The locks' names for readers: in a heading, and before a metric.
const NAMES: &[(&str, &str, &str)] = &[
    (
        "mmap_lock_read",
        "Read Lock Waiting Time Distribution of mmap_lock",
        "Read",
    ),
    (
        "mmap_lock_write",
        "Write Lock Waiting Time Distribution of mmap_lock",
        "Write",
    ),
    (
        "vma_lock",
        "Waiting Time Distribution of VMA locks",
        "VMA Lock",
    ),
];

/// The tables of all work whose rows tell of waits.
pub fn tables(cases: &Cases) -> String {
    let of = |line: &Line| acquisitions(cases, line) + &longest(cases, line);
    cases.lines.iter().map(of).collect()
}

/// How often locks were taken and how long that took, then a distribution for each.
fn acquisitions(cases: &Cases, line: &Line) -> String {
    let locks = locks(line, cases.names.len().min(2));
    if locks.is_empty() {
        return String::new();
    }
    // The kernel tells nobody of its locks.
    let (names, line) = &cases.narrowed(line, |group| group.lock_mean(locks[0], |_| 0.0).is_some());
    let columns = headings(cases, names, ["Before (Avg)", "After (Avg)"]);
    let header = |first: &str| -> Vec<String> {
        std::iter::once(first.to_owned())
            .chain(columns.clone())
            .collect()
    };
    let mut metrics = Table::plain(&header("Metric"), 1);
    let mut distributions = String::new();
    for &lock in &locks {
        let known = NAMES.iter().find(|(name, ..)| *name == lock);
        let other = format!("Waiting Time Distribution of {lock}");
        let (heading, metric) = known.map_or((&other[..], lock), |&(_, heading, metric)| {
            (heading, metric)
        });
        // `Read Lock Count`, but `Read Total Wait`, as the document has it.
        let counted = format!("{} Lock Count", metric.trim_end_matches(" Lock"));
        let mean = |figure: fn(&Lock) -> f64| line.figures(|group| group.lock_mean(lock, figure));
        let longest = |group: &Group| {
            let us = |lock: &Lock| lock.wait_max_us;
            group.median(|row| Some(us(row.locks.as_ref()?.get(lock)?)))
        };
        let mut add = |name: String, figures: Vec<Option<f64>>, show: fn(f64) -> String| {
            let mut row = vec![name];
            row.extend(with_changes(line, &figures, show));
            metrics.row(row);
        };
        add(counted, mean(|lock| lock.count as f64), count);
        add(
            format!("{metric} Total Wait (us)"),
            mean(|lock| lock.wait_total_us),
            count,
        );
        let avg = mean(|lock| lock.wait_total_us / lock.count.max(1) as f64);
        add(format!("{metric} Avg Wait (us)"), avg, |us| {
            format!("{us:.2}")
        });
        // The engine's longest wait is that since it was made.
        let since = match line.first().key.swaps() {
            true => ", populating too",
            false => "",
        };
        add(
            format!("{metric} Longest Wait (us){since}"),
            line.figures(longest),
            |us| format!("{us:.2}"),
        );

        // Of a lock that nobody ever waited for a microsecond the lines above say all.
        let waited = |lock: &Lock| lock.wait_ranges[1..].iter().sum::<u64>() as f64;
        if mean(waited).into_iter().flatten().all(|waits| waits == 0.0) {
            continue;
        }
        let mut ranges = Table::plain(&header("Range (us)"), 1);
        for (at, range) in RANGES.iter().enumerate() {
            let waits =
                line.figures(|group| group.lock_mean(lock, |lock| lock.wait_ranges[at] as f64));
            let mut row = vec![range.to_string()];
            row.extend(with_changes(line, &waits, count));
            ranges.row(row);
        }
        distributions += &ranges.titled(&format!("{heading}: {}", line.title()));
    }
    metrics.titled(&format!(
        "Lock Acquisitions And Wait Time: {}",
        line.title()
    )) + &distributions
}

/// The locks that so many cases or more tell of and that one has taken.
fn locks<'l>(line: &'l Line, tell: usize) -> Vec<&'l str> {
    let groups = || line.groups.iter().flatten();
    let mut locks: BTreeSet<&str> = groups().flat_map(Group::locks_taken).collect();
    let tells =
        |group: &&Group, lock: &str| group.lock_mean(lock, |lock| lock.count as f64).is_some();
    locks.retain(|lock| groups().filter(|group| tells(group, lock)).count() >= tell);
    locks.into_iter().collect()
}

/// The longest wait of any thread, by its operation.
fn longest(cases: &Cases, line: &Line) -> String {
    let title = line.title();
    let any =
        |group: &Group| (LONGEST_WAITS.iter()).any(|(_, of)| group.longest_wait(*of).is_some());
    let (names, line) = &cases.narrowed(line, any);
    let mut header = vec!["Longest (us)".to_owned()];
    header.extend(headings(cases, names, ["Before", "After"]));
    let mut table = Table::plain(&header, 1);
    for (name, of) in LONGEST_WAITS {
        let waits = line.figures(|group| group.longest_wait(of));
        if waits.iter().flatten().count() > 0 {
            let mut row = vec![name.to_owned()];
            row.extend(with_changes(line, &waits, show));
            table.row(row);
        }
    }
    table.titled(&format!(
        "Longest waits: {title}, medians of the runs' longest"
    ))
}
