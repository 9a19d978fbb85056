//! Histograms of waits for locks, in document 002's ranges.

use super::bars::{Bar, Bars, Chart};
use super::engines::Engines;
use super::scale::short;
use crate::results::group::{Group, threads};
use crate::results::row::RANGES;
use crate::table::figure;
use maud::Markup;
use std::collections::BTreeSet;

/// The ranges in words, as `RANGES`.
const WORDS: [&str; RANGES.len()] = [
    "below 1 µs",
    "1 to 10 µs",
    "10 to 100 µs",
    "0.1 to 1 ms",
    "1 to 10 ms",
    "10 to 100 ms",
    "0.1 to 1 s",
    "1 s and more",
];

/// The locks' names for readers.
const NAMES: [(&str, &str); 3] = [
    ("mmap_lock_read", "mmap_lock, to read"),
    ("mmap_lock_write", "mmap_lock, to write"),
    ("vma_lock", "VMA locks"),
];

/// A card for each pattern, number of threads and lock that was waited for; and the names of those that
/// were taken, but never waited for as long as a microsecond.
pub fn cards(groups: &[&Group], engines: &Engines) -> (Vec<Markup>, Vec<String>) {
    let mut keys = Vec::new();
    for group in groups {
        if !keys.contains(&group.key) {
            keys.push(group.key);
        }
    }
    let (mut cards, mut quiet) = (Vec::new(), Vec::new());
    for key in keys {
        let like: Vec<&Group> = groups
            .iter()
            .copied()
            .filter(|group| group.key == key)
            .collect();
        let locks: BTreeSet<&str> = like.iter().flat_map(|group| group.locks_taken()).collect();
        for lock in locks {
            let label = format!("{}, {}", key.variant(), threads(key.threads));
            match chart(&like, lock, &label) {
                Some(chart) => cards.push(chart.draw(engines)),
                None => quiet.push(format!("{} ({label})", name(lock))),
            }
        }
    }
    (cards, quiet)
}

fn chart<'a>(groups: &[&'a Group<'a>], lock: &str, label: &str) -> Option<Chart<'a>> {
    let taken = || {
        groups
            .iter()
            .filter(|group| group.locks_taken().contains(lock))
    };
    let waits =
        |group: &Group, at: usize| group.lock_mean(lock, |lock| lock.wait_ranges[at] as f64);
    let last = (0..RANGES.len()).rfind(|&at| taken().any(|group| waits(group, at) > Some(0.0)))?;
    if last == 0 {
        return None;
    }
    // One empty range shows that the others are empty.
    let shown = (last + 2).min(RANGES.len());
    let bar = |group: &'a Group<'a>, at: usize| {
        let waits = waits(group, at).unwrap_or(0.0);
        Bar {
            on: group.on,
            value: Some(waits),
            spread: None,
            text: match waits.fract() == 0.0 {
                true => figure::whole(waits as u64),
                false => figure::show(waits),
            },
            gave_up: false,
        }
    };
    let bars = |at: usize| Bars {
        label: WORDS[at].into(),
        bars: taken().map(|group| bar(group, at)).collect(),
    };
    let longest = |group: &&Group| {
        let wait = figure::seconds(group.longest_wait_us(lock) / 1e6);
        format!("{wait} on {}", group.on)
    };
    let longest: Vec<String> = taken().map(longest).collect();
    Some(Chart {
        title: format!("{}: {label}", name(lock)),
        caption: format!(
            "acquisitions of a run by how long they waited; longest{} {}",
            match groups[0].key.swaps() {
                // The engine's longest wait is that since it was made.
                true => ", populating included,",
                false => "",
            },
            longest.join(", ")
        ),
        groups: (0..shown).map(bars).collect(),
        limit: None,
        beside: Vec::new(),
        tick: short,
        bytes: false,
    })
}

/// A lock's name for readers.
fn name(lock: &str) -> &str {
    let known = NAMES.iter().find(|(name, _)| *name == lock);
    known.map_or(lock, |(_, name)| name)
}
