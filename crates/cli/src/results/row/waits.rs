//! How long threads were kept waiting: for locks, and in the operations that workloads time.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ranges of document 002's wait histogram, in microseconds.
pub const RANGES: [&str; 8] = [
    "[0, 1)",
    "[1, 10)",
    "[10, 100)",
    "[100, 1000)",
    "[1000, 10000)",
    "[10000, 100000)",
    "[100000, 1000000)",
    "[1000000, +)",
];

/// Waits for one lock in one run, in microseconds as document 002 tells them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// Times it was taken.
    pub count: u64,
    /// All waits.
    pub wait_total_us: f64,
    /// By times taken.
    #[serde(default)]
    pub wait_avg_us: f64,
    /// The longest; where memory is populated first, it may be one of then.
    pub wait_max_us: f64,
    /// Waits in each of `RANGES`.
    pub wait_ranges: [u64; RANGES.len()],
}

impl Lock {
    /// From counts, in nanoseconds.
    pub fn of(count: u64, total_ns: u64, max_ns: u64, ranges: [u64; RANGES.len()]) -> Self {
        let total_us = total_ns as f64 / 1e3;
        Self {
            count,
            wait_total_us: total_us,
            wait_avg_us: total_us / count.max(1) as f64,
            wait_max_us: max_ns as f64 / 1e3,
            wait_ranges: ranges,
        }
    }
}

/// An operation that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A touch of a page.
    Touch,
    /// A touch by the thread whose priority is above the others'.
    PriorityTouch,
    /// Mapping.
    Map,
    /// Unmapping.
    Unmap,
    /// fork, in the parent.
    Fork,
    /// A touch that was under way while the process forked.
    ForkTouch,
    /// A touch while a child walks over the memory that it was forked with.
    WalkTouch,
    /// The walk of that child.
    Walk,
}

/// How many there are.
pub const WAITED: usize = 8;

/// All of them, with their names in a row's JSON.
const NAMES: [(Waited, &str); WAITED] = [
    (Waited::Touch, "touch"),
    (Waited::PriorityTouch, "priority_touch"),
    (Waited::Map, "map"),
    (Waited::Unmap, "unmap"),
    (Waited::Fork, "fork"),
    (Waited::ForkTouch, "fork_touch"),
    (Waited::WalkTouch, "walk_touch"),
    (Waited::Walk, "walk"),
];

/// How many of each kind waited how long, in the order of `Waited`.
pub type WaitRanges = [[u64; RANGES.len()]; WAITED];

/// The range that a wait is in.
pub fn range_of(ns: u64) -> usize {
    let ranges = (0..RANGES.len() - 1).map(|range| 1000 * 10u64.pow(range as u32));
    ranges.take_while(|&end| ns >= end).count()
}

/// Ranges of touches, finer: eight for each power of two of nanoseconds.
pub const FINE_RANGES: usize = 41 * 8;

/// The fine range that a wait is in; the last one has all that is longer.
pub fn fine_range_of(ns: u64) -> usize {
    let octave = ns.max(8).ilog2() as usize;
    let eighth = (ns.max(8) >> (octave - 3)) as usize & 7;
    ((octave - 3) * 8 + eighth).min(FINE_RANGES - 1)
}

/// The wait that of a thousand touches all but one do not exceed, of so many in each fine range: where the range
/// that it is in ends. 0 if there was none.
pub fn longest_of_thousand(ranges: impl IntoIterator<Item = u64> + Clone) -> u64 {
    let all: u64 = ranges.clone().into_iter().sum();
    let mut left = all - all / 1000;
    let at = ranges.into_iter().position(|count| {
        left = left.saturating_sub(count);
        left == 0
    });
    match at.filter(|_| all > 0) {
        Some(at) => (9 + at as u64 % 8) << (at / 8),
        None => 0,
    }
}

/// The ranges of the kinds that were timed, by name.
pub fn by_name(ranges: &WaitRanges) -> Option<BTreeMap<String, [u64; RANGES.len()]>> {
    let named = NAMES.map(|(what, name)| (name.to_owned(), ranges[what as usize]));
    let timed = named
        .into_iter()
        .filter(|(_, ranges)| ranges.iter().any(|count| *count > 0));
    Some(timed.collect::<BTreeMap<_, _>>()).filter(|timed| !timed.is_empty())
}

/// The longest time that a run's threads were kept waiting, in microseconds; `None` of operations that the workload does not
/// do or time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongestWaits {
    /// A touch of a page.
    pub touch_us: Option<f64>,
    /// A touch by the thread of high priority.
    pub priority_touch_us: Option<f64>,
    /// Mapping.
    pub map_us: Option<f64>,
    /// Unmapping.
    pub unmap_us: Option<f64>,
    /// fork, in the parent.
    pub fork_us: Option<f64>,
    /// A touch that was under way while the process forked.
    pub fork_touch_us: Option<f64>,
    /// A touch while the child walked over the memory.
    pub walk_touch_us: Option<f64>,
    /// The child's walk.
    pub walk_us: Option<f64>,
}

/// A wait of `LongestWaits`.
pub type LongestWait = fn(&LongestWaits) -> Option<f64>;

/// All of `LongestWaits` with their names for readers, the subject of document 002 first.
pub const LONGEST_WAITS: [(&str, LongestWait); WAITED] = [
    ("High-priority touch", |waits| waits.priority_touch_us),
    ("Unmap", |waits| waits.unmap_us),
    ("Fork", |waits| waits.fork_us),
    ("Touch at the fork", |waits| waits.fork_touch_us),
    ("Touch in the walk", |waits| waits.walk_touch_us),
    ("Walk", |waits| waits.walk_us),
    ("Touch", |waits| waits.touch_us),
    ("Map", |waits| waits.map_us),
];

impl LongestWaits {
    /// From nanoseconds in the order of `Waited`, 0 for a wait that was never timed; `None` if none was.
    pub fn of(ns: [u64; WAITED]) -> Option<Self> {
        let us = |what: Waited| Some(ns[what as usize] as f64 / 1e3).filter(|us| *us > 0.0);
        ns.iter().any(|ns| *ns > 0).then(|| Self {
            touch_us: us(Waited::Touch),
            priority_touch_us: us(Waited::PriorityTouch),
            map_us: us(Waited::Map),
            unmap_us: us(Waited::Unmap),
            fork_us: us(Waited::Fork),
            fork_touch_us: us(Waited::ForkTouch),
            walk_touch_us: us(Waited::WalkTouch),
            walk_us: us(Waited::Walk),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untimed_figures_are_null() {
        assert_eq!(LongestWaits::of([0; WAITED]), None);
        let waits = LongestWaits::of([1500, 0, 0, 0, 7, 0, 0, 0]).unwrap();
        assert_eq!((waits.touch_us, waits.fork_us), (Some(1.5), Some(0.007)));
        assert_eq!((waits.priority_touch_us, waits.map_us), (None, None));
    }

    #[test]
    fn ranges_are_decades() {
        let ranges = [
            0,
            999,
            1000,
            9_999,
            10_000,
            999_999_999,
            1_000_000_000,
            u64::MAX,
        ]
        .map(range_of);
        assert_eq!(ranges, [0, 0, 1, 1, 2, 6, 7, 7]);
    }

    #[test]
    fn fine_ranges_are_an_eighth_wide() {
        assert_eq!(
            [0, 7, 8, 9, 15, 16, 17, 18].map(fine_range_of),
            [0, 0, 0, 1, 7, 8, 8, 9]
        );
        assert_eq!(fine_range_of(u64::MAX), FINE_RANGES - 1);
        for ns in [8, 100, 1000, 123_456, 1 << 40] {
            let mut ranges = [0; FINE_RANGES];
            ranges[fine_range_of(ns)] = 1;
            let end = longest_of_thousand(ranges);
            assert!(ns < end && end <= ns + ns / 7, "{ns}: {end}");
        }
    }

    #[test]
    fn one_of_a_thousand_may_wait_longer() {
        let mut ranges = [0; FINE_RANGES];
        assert_eq!(longest_of_thousand(ranges), 0);
        ranges[fine_range_of(1000)] = 999;
        ranges[fine_range_of(1_000_000)] = 1;
        assert_eq!(longest_of_thousand(ranges), 1024);
        ranges[fine_range_of(1_000_000)] = 2;
        assert_eq!(longest_of_thousand(ranges), 1 << 20);
    }

    #[test]
    fn kinds_that_were_timed_are_named() {
        let mut waits = [[0; RANGES.len()]; WAITED];
        assert_eq!(by_name(&waits), None);
        waits[Waited::Walk as usize][7] = 1;
        let named = by_name(&waits).unwrap();
        let walk = ("walk".to_owned(), [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(named.into_iter().collect::<Vec<_>>(), [walk]);
    }

    #[test]
    fn every_kind_has_its_own_name() {
        for (at, (what, _)) in NAMES.into_iter().enumerate() {
            assert_eq!(what as usize, at);
        }
    }
}
