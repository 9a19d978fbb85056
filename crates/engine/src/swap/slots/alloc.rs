//! Giving out a run of slots.

use super::Slots;
use super::lists::{AllocCursor, Current, class};
use super::queue::TakenClusters;
use super::run::Best;
use core::ops::Range;
use sync::atomic::Ordering::Relaxed;

/// Clusters that one call looks through in vain for a longer run.
const LOOKS: u32 = 8;
/// The part of the budget beyond which the table grows only if no slot is free in clusters that have been used: it never shrinks,
/// and slots that come and go would leave some in use everywhere.
const PART: u64 = 8;

impl Slots {
    /// Takes up to `most` free slots in a row, each for one page. `None` if none
    /// is free, or the budget has no page for the words of the next.
    pub fn alloc(&self, most: u32) -> Option<Range<u32>> {
        let most = most.min(self.table.cluster());
        if most == 0 {
            return None;
        }
        let mut hand = self.hand.lock();
        let hand = &mut *hand;
        loop {
            let were_some = self.look_at_queue(hand);
            let run = (self.go_on(hand, most))
                .or_else(|| self.start(hand, most))
                .or_else(|| self.fill(hand, most));
            if run.is_some() || !were_some {
                return run;
            }
        }
    }

    /// Puts clusters where they belong now. False if there were none.
    fn look_at_queue(&self, hand: &mut AllocCursor) -> bool {
        let mut taken = core::mem::replace(&mut hand.taken, TakenClusters::NONE);
        let were_some = self.queue.take(&self.table, &mut taken, |number, used| {
            hand.got_better(&self.table, number, used);
        });
        hand.taken = taken;
        were_some
    }

    /// Charges the pages of the table that the next cluster which was never used
    /// needs, if that has not been done. A thread that makes room by writing to slots calls
    /// it while pages are free: `alloc` may come when none are.
    pub fn prepare(&self) -> bool {
        let mut hand = self.hand.lock();
        let next = hand.fresh + 1;
        next > self.table.clusters() || self.pay(&mut hand, next)
    }

    /// The same with pages that the caller has charged and is about to pay back;
    /// returns how many it keeps. An eviction under a full budget has no other pages to charge.
    pub fn prepare_from(&self, charged: u64) -> u64 {
        let mut hand = self.hand.lock();
        let next = hand.fresh + 1;
        if next > self.table.clusters() || next <= hand.paid {
            return 0;
        }
        let pages = self.table.pages(next) - self.table.pages(hand.paid);
        if pages > charged {
            return 0;
        }
        hand.paid = next;
        pages
    }

    /// From the current cluster, behind the last run.
    fn go_on(&self, hand: &mut AllocCursor, most: u32) -> Option<Range<u32>> {
        let Current { number, at, least } = hand.current.take()?;
        let ahead = at..self.table.slots(number).end;
        let has_better = least < self.long() && hand.has_better(least, most);
        let run = match has_better {
            true => None,
            false => self.table.next_run(ahead, least.min(most), most),
        };
        let Some(run) = run else {
            let used = self.table.record(number).used();
            hand.place(&self.table, number, used, 0);
            return None;
        };
        self.take(number, run.clone());
        hand.start(&self.table, number, run.end, least);
        Some(run)
    }

    /// From a free cluster, which becomes the current one.
    fn start(&self, hand: &mut AllocCursor, most: u32) -> Option<Range<u32>> {
        let number = hand.free().or_else(|| self.fresh(hand))?;
        let run = self.table.next_run(self.table.slots(number), 1, most)?;
        self.take(number, run.clone());
        hand.start(&self.table, number, run.end, self.long());
        Some(run)
    }

    /// A run that is long enough for any allocation.
    fn long(&self) -> u32 {
        (self.table.cluster() / 4).max(1)
    }

    /// From the free slots between slots in use. Where there is no run of `most`,
    /// the cluster becomes the current one, for others like the one that it has.
    fn fill(&self, hand: &mut AllocCursor, most: u32) -> Option<Range<u32>> {
        for look in 1.. {
            let (list, number) = hand.best(most)?;
            let Best { run, left } = self.table.best_run(number, most);
            let length = run.len() as u32;
            assert!(length > 0, "cluster {number} has no free slot");
            if length < most && class(length) < list && look < LOOKS {
                let used = self.table.record(number).used();
                hand.place(&self.table, number, used, length);
                continue;
            }
            let used = self.take(number, run.clone());
            if length < most {
                let start = self.table.slots(number).start;
                hand.start(&self.table, number, start, 1 << class(length));
            } else {
                hand.place(&self.table, number, used, left);
            }
            return Some(run);
        }
        None
    }

    /// The next cluster that was never used, paid for.
    fn fresh(&self, hand: &mut AllocCursor) -> Option<u32> {
        let number = hand.fresh;
        if number == self.table.clusters() || !self.is_to_grow(hand) || !self.pay(hand, number + 1)
        {
            return None;
        }
        hand.fresh += 1;
        Some(number)
    }

    /// True if the next cluster that was never used is to be taken rather than slots between slots in use.
    fn is_to_grow(&self, hand: &AllocCursor) -> bool {
        let pages = self.table.pages(hand.fresh + 1);
        pages <= self.budget.limit() / PART || hand.best(1).is_none()
    }

    /// Charges the need of the first `clusters`.
    fn pay(&self, hand: &mut AllocCursor, clusters: u32) -> bool {
        if clusters <= hand.paid {
            return true;
        }
        let pages = self.table.pages(clusters) - self.table.pages(hand.paid);
        let paid = pages == 0 || self.budget.try_charge(pages, 0);
        if paid {
            hand.paid = clusters;
        }
        paid
    }

    /// Gives out a run of free slots; returns how many of the cluster are in use.
    fn take(&self, number: u32, run: Range<u32>) -> u32 {
        for slot in run.clone() {
            // Relaxed: the slot is free, and ours by the hand's lock; its next
            // owner learns of it from the caller.
            self.table.word(slot).store(1, Relaxed);
        }
        self.table.record(number).count_in(run.len() as u32)
    }
}
