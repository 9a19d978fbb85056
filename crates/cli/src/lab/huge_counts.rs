//! The counts of a process of the workload hugetlb beside its touches, in its slot of the shared counters, and the
//! sums of all.

use crate::results::row::{Huge, MeasuredHuge};
use std::sync::atomic::{AtomicU64, Ordering};

/// A process's counters. Relaxed throughout: each stands for itself.
#[repr(C)]
pub struct HugeSlot {
    /// Faults that its engine served.
    pub served: AtomicU64,
    /// Its minor faults, by the kernel's count.
    pub minor_faults: AtomicU64,
    /// Touches that slept.
    pub waits: AtomicU64,
    /// How long these took, in nanoseconds.
    pub wait_ns: AtomicU64,
    /// The longest of them.
    pub longest_wait_ns: AtomicU64,
}

impl HugeSlot {
    /// Counts no waits: somebody else has.
    pub fn forget_waits(&self) {
        for counter in [&self.waits, &self.wait_ns, &self.longest_wait_ns] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Sums over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugeCounts {
    /// Faults that engines served.
    pub served: u64,
    /// Minor faults, by the kernel's count.
    pub minor_faults: u64,
    /// Touches that slept.
    pub waits: u64,
    /// How long these took, in nanoseconds.
    pub wait_ns: u64,
    /// The longest of them.
    pub longest_wait_ns: u64,
}

impl HugeCounts {
    /// With the counts of another process.
    pub fn and(self, slot: &HugeSlot) -> Self {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            served: self.served + of(&slot.served),
            minor_faults: self.minor_faults + of(&slot.minor_faults),
            waits: self.waits + of(&slot.waits),
            wait_ns: self.wait_ns + of(&slot.wait_ns),
            longest_wait_ns: self.longest_wait_ns.max(of(&slot.longest_wait_ns)),
        }
    }

    /// As a row has them, of memory that was made of this.
    pub fn told(self, made_of: &str) -> Huge {
        Huge::Measured(MeasuredHuge {
            made_of: made_of.into(),
            waits: self.waits,
            wait_total_us: self.wait_ns as f64 / 1e3,
            wait_max_us: self.longest_wait_ns as f64 / 1e3,
            served: self.served,
            minor_faults: self.minor_faults,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(n: u64) -> HugeSlot {
        HugeSlot {
            served: n.into(),
            minor_faults: n.into(),
            waits: n.into(),
            wait_ns: n.into(),
            longest_wait_ns: n.into(),
        }
    }

    #[test]
    fn waits_that_are_forgotten_are_in_no_sum() {
        let other = slot(4);
        other.forget_waits();
        let counts = HugeCounts::default().and(&slot(3)).and(&other);
        let waits = (counts.waits, counts.wait_ns, counts.longest_wait_ns);
        assert_eq!((waits, counts.served), ((3, 3, 3), 7));
    }

    #[test]
    fn sums_and_the_longest() {
        let counts = HugeCounts::default().and(&slot(3)).and(&slot(2));
        let HugeCounts {
            served: 5,
            minor_faults: 5,
            waits: 5,
            wait_ns: 5,
            longest_wait_ns: 3,
        } = counts
        else {
            panic!("{counts:?}");
        };
    }
}
