//! Longest waits: what the workloads time around single operations, the same way for every engine.

use super::stats::RANGES;
use serde::Serialize;
use std::collections::BTreeMap;

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

/// How many of each kind waited how long: below 1, 10, 100, 1,000, 10,000, 100,000, 1,000,000 µs, and longer.
pub type WaitRanges = [[u64; RANGES]; WAITED];

/// The range that a wait is in.
pub fn range_of(ns: u64) -> usize {
    let ranges = (0..RANGES - 1).map(|range| 1000 * 10u64.pow(range as u32));
    ranges.take_while(|&end| ns >= end).count()
}

/// The ranges of the kinds that were timed, by name, for a row's JSON.
pub fn by_name(ranges: &WaitRanges) -> Option<BTreeMap<&'static str, [u64; RANGES]>> {
    let named = NAMES.map(|(what, name)| (name, ranges[what as usize]));
    let timed = named
        .into_iter()
        .filter(|(_, ranges)| ranges.iter().any(|count| *count > 0));
    Some(timed.collect::<BTreeMap<_, _>>()).filter(|timed| !timed.is_empty())
}

/// The longest of each in a row's JSON, in microseconds; null for what the workload does not do or time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
    /// A touch while the child walked.
    pub walk_touch_us: Option<f64>,
    /// The child's walk.
    pub walk_us: Option<f64>,
}

impl LongestWaits {
    /// From nanoseconds in the order of `Waited`, 0 being what was never timed; `None` if nothing was.
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
    fn what_was_never_timed_is_null() {
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
        let mut waits = [[0; RANGES]; WAITED];
        assert_eq!(by_name(&waits), None);
        waits[Waited::Walk as usize][7] = 1;
        let named = by_name(&waits).unwrap();
        assert_eq!(
            named.into_iter().collect::<Vec<_>>(),
            [("walk", [0, 0, 0, 0, 0, 0, 0, 1])]
        );
    }

    #[test]
    fn every_kind_has_its_own_name() {
        for (at, (what, _)) in NAMES.into_iter().enumerate() {
            assert_eq!(what as usize, at);
        }
    }
}
