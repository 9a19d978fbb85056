//! Longest waits: what the workloads time around single operations, the same way for every engine.

use serde::Serialize;

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
}

/// How many there are.
pub const WAITED: usize = 5;

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
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_timed_is_null() {
        assert_eq!(LongestWaits::of([0; WAITED]), None);
        let waits = LongestWaits::of([1500, 0, 0, 0, 7]).unwrap();
        assert_eq!((waits.touch_us, waits.fork_us), (Some(1.5), Some(0.007)));
        assert_eq!((waits.priority_touch_us, waits.map_us), (None, None));
    }
}
