//! Histograms of waits for locks, in document 002's ranges.

use super::bars::{Bar, Bars, Chart};
use super::engines::Engines;
use super::scale::short;
use crate::results::group::{Group, threads};
use crate::results::{Lock, RANGES, figure};
use maud::Markup;

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

/// A card for each pattern, number of threads and lock that was taken at all.
pub fn cards(groups: &[&Group], engines: &Engines) -> Vec<Markup> {
    let mut keys = Vec::new();
    for group in groups {
        if !keys.contains(&group.key) {
            keys.push(group.key);
        }
    }
    let mut cards = Vec::new();
    for key in keys {
        let like: Vec<&Group> = groups
            .iter()
            .copied()
            .filter(|group| group.key == key)
            .collect();
        for lock in locks(&like) {
            let label = format!("{}, {}", key.pattern, threads(key.threads));
            if let Some(chart) = chart(&like, &lock, &label) {
                cards.push(chart.draw(engines));
            }
        }
    }
    cards
}

fn locks(groups: &[&Group]) -> Vec<String> {
    let rows = groups.iter().flat_map(|group| &group.runs);
    let locks = rows.filter_map(|row| row.locks.as_ref());
    let mut names: Vec<String> = locks.flat_map(|locks| locks.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}

fn chart<'a>(groups: &[&'a Group<'a>], lock: &str, label: &str) -> Option<Chart<'a>> {
    let count = |group: &&&Group| figures(group, lock, |lock| lock.count as f64).unwrap_or(0.0);
    let taken: Vec<&Group> = groups
        .iter()
        .filter(|group| count(group) > 0.0)
        .copied()
        .collect();
    let waits = |group: &Group, at: usize| {
        figures(group, lock, |lock| lock.wait_ranges[at] as f64).unwrap_or(0.0)
    };
    let last = (0..RANGES.len()).rfind(|&at| taken.iter().any(|group| waits(group, at) > 0.0))?;
    // Empty ranges past the first empty one say nothing that the longest wait does not say.
    let shown = (last + 2).min(RANGES.len());
    let bar = |group: &'a Group<'a>, at: usize| {
        let waits = waits(group, at);
        Bar {
            on: group.on,
            value: Some(waits),
            spread: None,
            text: figure::whole(waits.round() as u64),
            gave_up: false,
        }
    };
    let bars = |at: usize| Bars {
        label: WORDS[at].into(),
        bars: taken.iter().map(|group| bar(group, at)).collect(),
    };
    let longest: Vec<String> = taken.iter().map(|group| longest(group, lock)).collect();
    let name = NAMES.iter().find(|(name, _)| *name == lock);
    Some(Chart {
        title: format!("{}: {label}", name.map_or(lock, |(_, name)| name)),
        caption: format!(
            "acquisitions by how long they waited; longest {}",
            longest.join(", ")
        ),
        groups: (0..shown).map(bars).collect(),
        limit: None,
        tick: short,
        bytes: false,
    })
}

fn longest(group: &Group, lock: &str) -> String {
    let longest = figures(group, lock, |lock| lock.wait_max_us).unwrap_or(0.0);
    format!("{} on {}", figure::seconds(longest / 1e6), group.on)
}

fn figures(group: &Group, lock: &str, value: impl Fn(&Lock) -> f64) -> Option<f64> {
    group.median(|row| Some(value(row.locks.as_ref()?.get(lock)?)))
}
