//! Giving out a run of slots.

use super::Slots;
use super::lists::{Hand, class};
use core::ops::Range;
use sync::atomic::Ordering::Relaxed;

/// Clusters that one call looks through in vain for a longer run.
const LOOKS: u32 = 8;

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
        self.queue.take(&self.table, |number, used| {
            hand.got_better(&self.table, number, used);
        });
        self.go_on(hand, most)
            .or_else(|| self.start(hand, most))
            .or_else(|| self.fill(hand, most))
    }

    /// Charges the pages of the table that the next cluster which was never used
    /// needs, if that has not been done. Who makes room by writing to slots calls
    /// it when there is some: `alloc` may come when there is none.
    pub fn prepare(&self) -> bool {
        let mut hand = self.hand.lock();
        let next = hand.fresh + 1;
        next > self.table.clusters() || self.pay(&mut hand, next)
    }

    /// From the current cluster, behind the last run.
    fn go_on(&self, hand: &mut Hand, most: u32) -> Option<Range<u32>> {
        let (number, at) = hand.current.take()?;
        let ahead = at..self.table.slots(number).end;
        // A shorter one is better left to who wants no more.
        let least = most.min((self.table.cluster() / 4).max(1));
        let Some(run) = self.table.next_run(ahead, least, most) else {
            let used = self.table.record(number).used();
            hand.place(&self.table, number, used, 0);
            return None;
        };
        hand.current = Some((number, run.end));
        self.take(number, run.clone());
        Some(run)
    }

    /// From a free cluster, which becomes the current one.
    fn start(&self, hand: &mut Hand, most: u32) -> Option<Range<u32>> {
        let number = hand.free().or_else(|| self.fresh(hand))?;
        let run = self.table.next_run(self.table.slots(number), 1, most)?;
        hand.start(&self.table, number);
        hand.current = Some((number, run.end));
        self.take(number, run.clone());
        Some(run)
    }

    /// From what is left between slots in use.
    fn fill(&self, hand: &mut Hand, most: u32) -> Option<Range<u32>> {
        for look in 1.. {
            let (list, number) = hand.best(most)?;
            let best = self.table.best_run(number, most);
            let length = best.run.len() as u32;
            assert!(length > 0, "cluster {number} has no free slot");
            if length < most && class(length) < list && look < LOOKS {
                let used = self.table.record(number).used();
                hand.place(&self.table, number, used, length);
                continue;
            }
            let used = self.take(number, best.run.clone());
            hand.place(&self.table, number, used, best.left);
            return Some(best.run);
        }
        None
    }

    /// The next cluster that was never used, paid for.
    fn fresh(&self, hand: &mut Hand) -> Option<u32> {
        let number = hand.fresh;
        if number == self.table.clusters() || !self.pay(hand, number + 1) {
            return None;
        }
        hand.fresh += 1;
        Some(number)
    }

    /// Charges what the first `clusters` need.
    fn pay(&self, hand: &mut Hand, clusters: u32) -> bool {
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
            // Relaxed: the slot is free, and ours by the hand's lock; who has it
            // next heard of it from the caller.
            self.table.word(slot).store(1, Relaxed);
        }
        self.table.record(number).count_in(run.len() as u32)
    }
}
