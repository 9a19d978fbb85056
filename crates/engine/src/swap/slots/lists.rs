//! Where clusters are that have free slots: on lists, by the longest run that can
//! be had there.
//!
//! A cluster on list `n` has a run of at least 2^n slots, as far as is known: its
//! slots were looked through. Or so many free slots, if some were freed since:
//! the next allocation looks. A full cluster is on no list.

use super::queue::TakenClusters;
use super::table::SwapMap;
use sync::atomic::Ordering::Relaxed;
use sync::wait::WaitWord;

/// Lists of clusters that are not free as a whole: by runs of 1 to half a
/// [`CLUSTER`](super::CLUSTER), and more.
pub(super) const CLASSES: usize = 10;
/// The list of those that are.
const FREE: usize = CLASSES;

/// Places of a cluster. On list `n` it is at place `n` + [`LISTED`].
const NOWHERE: u32 = 0;
/// The one that the last run came from.
const CURRENT: u32 = 1;
const LISTED: u32 = 2;

/// No cluster.
pub(super) const NONE: u32 = u32::MAX;

/// The state that allocation needs.
pub(super) struct AllocCursor {
    /// The cluster that the last run came from.
    pub(super) current: Option<Current>,
    /// Clusters that got better, and have not been looked at.
    pub(super) taken: TakenClusters,
    /// Clusters from here on have never been used.
    pub(super) fresh: u32,
    /// Clusters below have their pages of the table charged.
    pub(super) paid: u32,
    /// The first of each list.
    lists: [u32; CLASSES + 1],
}

/// The cluster that the last run came from.
pub(super) struct Current {
    pub(super) number: u32,
    /// The slot behind that run.
    pub(super) at: u32,
    /// Shorter runs are not taken, unless no more is wanted.
    pub(super) least: u32,
}

/// The list for runs of `slots`.
pub(super) fn class(slots: u32) -> usize {
    slots.ilog2() as usize
}

impl AllocCursor {
    pub(super) fn new() -> Self {
        Self {
            current: None,
            taken: TakenClusters::NONE,
            fresh: 0,
            paid: 0,
            lists: [NONE; CLASSES + 1],
        }
    }

    /// Puts a cluster that has `used` slots in use where it belongs. Its `run` is
    /// how many free ones it has in a row; 0 if nobody looked.
    pub(super) fn place(&mut self, table: &SwapMap, number: u32, used: u32, run: u32) {
        let free = table.size(number).saturating_sub(used);
        let place = match free {
            0 => NOWHERE,
            _ if used == 0 => LISTED + FREE as u32,
            // One was freed that was in use when somebody looked.
            _ => LISTED + class(if run == 0 { free } else { run }) as u32,
        };
        self.leave(table, number);
        // Relaxed, here and below: the hand's lock.
        table.record(number).place.store(place, Relaxed);
        if place >= LISTED {
            self.link(table, number, (place - LISTED) as usize);
        }
    }

    /// The same, from the queue: it may be the current one, which stays that.
    pub(super) fn got_better(&mut self, table: &SwapMap, number: u32, used: u32) {
        if table.record(number).place() != CURRENT {
            self.place(table, number, used, 0);
        }
    }

    /// Makes it the current one, from slot `at` on.
    pub(super) fn start(&mut self, table: &SwapMap, number: u32, at: u32, least: u32) {
        self.leave(table, number);
        table.record(number).place.store(CURRENT, Relaxed);
        self.current = Some(Current { number, at, least });
    }

    /// A cluster that is free as a whole, of those that have been used.
    pub(super) fn free(&self) -> Option<u32> {
        self.first(FREE)
    }

    /// True if a cluster has a longer run than those of `least`, for an allocation of
    /// `most`.
    pub(super) fn has_better(&self, least: u32, most: u32) -> bool {
        let better = self.best(most).is_some_and(|(list, _)| list > class(least));
        least < most && (better || self.free().is_some())
    }

    /// The best for a run of `most`: on the first list that has it for sure, or
    /// on the last below.
    pub(super) fn best(&self, most: u32) -> Option<(usize, u32)> {
        let sure = class(most.next_power_of_two()).min(CLASSES);
        let lists = (sure..CLASSES).chain((0..sure).rev());
        lists
            .map(|list| (list, self.lists[list]))
            .find(|(_, number)| *number != NONE)
    }

    fn first(&self, list: usize) -> Option<u32> {
        Some(self.lists[list]).filter(|number| *number != NONE)
    }

    fn link(&mut self, table: &SwapMap, number: u32, list: usize) {
        let cluster = table.record(number);
        let next = core::mem::replace(&mut self.lists[list], number);
        cluster.next.store(next, Relaxed);
        cluster.prev.store(NONE, Relaxed);
        if next != NONE {
            table.record(next).prev.store(number, Relaxed);
        }
    }

    /// Takes it off its list, if it is on one.
    fn leave(&mut self, table: &SwapMap, number: u32) {
        let cluster = table.record(number);
        let Some(list) = cluster.place().checked_sub(LISTED) else {
            return;
        };
        let get = |word: &WaitWord| word.load(Relaxed);
        let (prev, next) = (get(&cluster.prev), get(&cluster.next));
        if prev == NONE {
            self.lists[list as usize] = next;
        } else {
            table.record(prev).next.store(next, Relaxed);
        }
        if next != NONE {
            table.record(next).prev.store(prev, Relaxed);
        }
    }
}
