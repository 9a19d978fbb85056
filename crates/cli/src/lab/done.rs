//! The work of a run so far, summed over its threads' counters: by the parent, at any time, and for
//! good once the child has ended or was killed.

use super::counters::Counters;
use super::huge_counts::HugeCounts;
use crate::results::row::{FINE_RANGES, WAITED, WaitRanges, longest_of_thousand};
use crate::results::stats::median;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sums over a run's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Pages touched by workers.
    pub accesses: u64,
    /// Rounds completed by workers.
    pub rounds: u64,
    /// The fewest rounds of any worker.
    pub min_rounds: u64,
    /// The median of the workers' rounds.
    pub median_rounds: f64,
    /// Pairs of mapping and unmapping, by all threads.
    pub maps: u64,
    /// Wall clock of the populations, in nanoseconds.
    pub populate_ns: u64,
    /// User and system time of the populations, in nanoseconds.
    pub populate_cpu_ns: u64,
    /// Nanoseconds of the longest wait of each kind; 0 for a wait that was not timed.
    pub longest_ns: [u64; WAITED],
    /// How many of each kind waited how long.
    pub waits: WaitRanges,
    /// The longest touch but for one of a thousand, in nanoseconds; 0 if none was timed.
    pub touch_p999_ns: u64,
    /// Of huge memory, by all processes.
    pub huge: HugeCounts,
}

impl Done {
    /// Reads the threads' counters, of which the first `workers` are those that the workload is about;
    /// the others stand beside them.
    pub fn of(counters: &Counters, workers: usize) -> Self {
        // Relaxed: each figure stands for itself.
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let slots = counters.slots();
        let sum = |figure: fn(&super::counters::Slot) -> &AtomicU64| {
            slots.iter().map(|slot| value(figure(slot))).sum::<u64>()
        };
        let workers = &slots[..workers];
        let rounds = || workers.iter().map(|slot| value(&slot.rounds));
        Self {
            // Rounds first: threads may still be at work, and count the touches of a round before it.
            rounds: rounds().sum(),
            accesses: workers.iter().map(|slot| value(&slot.accesses)).sum(),
            min_rounds: rounds().min().unwrap_or(0),
            median_rounds: median(rounds().map(|rounds| rounds as f64).collect()).unwrap_or(0.0),
            maps: sum(|slot| &slot.maps),
            populate_ns: sum(|slot| &slot.populate_ns),
            populate_cpu_ns: sum(|slot| &slot.populate_cpu_ns),
            longest_ns: std::array::from_fn(|what| {
                let longest = slots.iter().map(|slot| value(&slot.longest_ns[what]));
                longest.max().unwrap_or(0)
            }),
            touch_p999_ns: longest_of_thousand((0..FINE_RANGES).map(|range| {
                let touches = slots.iter().map(|slot| value(&slot.touches[range]));
                touches.sum()
            })),
            huge: (slots.iter()).fold(HugeCounts::default(), |sum, slot| sum.and(&slot.huge)),
            waits: std::array::from_fn(|what| {
                std::array::from_fn(|range| {
                    slots
                        .iter()
                        .map(|slot| value(&slot.waits[what][range]))
                        .sum()
                })
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stats::RANGES;
    use super::*;

    #[test]
    fn workers_do_the_work_and_all_threads_wait() {
        let counters = Counters::create(3).unwrap();
        for (number, slot) in (1..).zip(counters.slots()) {
            slot.accesses.store(number, Ordering::Relaxed);
            slot.rounds.store(10 * number, Ordering::Relaxed);
            slot.maps.store(number, Ordering::Relaxed);
            slot.longest_ns[4].store(number, Ordering::Relaxed);
        }
        let done = Done::of(&counters, 2);
        assert_eq!((done.accesses, done.rounds, done.min_rounds), (3, 30, 10));
        assert_eq!(done.median_rounds, 15.0);
        assert_eq!((done.maps, done.longest_ns), (6, [0, 0, 0, 0, 3, 0, 0, 0]));
        assert_eq!(done.waits, [[0; RANGES]; WAITED]);
        let none = Done::of(&counters, 0);
        assert_eq!((none.accesses, none.min_rounds), (0, 0));
    }
}
