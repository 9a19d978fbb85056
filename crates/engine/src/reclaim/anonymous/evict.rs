//! Taking a batch out.

use super::{EvictOutcome, PrivateBatch, Taken, Victim};
use crate::PAGE_SIZE;
use crate::anon::Anonymous;
use crate::budget::InHand;
use crate::cache::Node;
use crate::mmu::{TABLE_SPAN, WrittenPage};
use crate::reclaim::evict::Evicted;
use crate::reclaim::windows::Busy;
use core::ops::Range;

impl Node {
    /// Evicts about `target` pages of private memory, or a batch if that is more.
    /// Does nothing if there is `enough` once it is this thread's turn, and if that would have to be waited for with folios in hand.
    // Not inlined: its variables would be on the handler's stack while folios are evicted.
    #[inline(never)]
    pub(in crate::reclaim) fn evict_anonymous(
        &self,
        target: usize,
        in_hand: InHand,
        enough: impl Fn() -> bool,
    ) -> Evicted {
        let batches = &self.private.batches;
        let batch = match in_hand {
            InHand::Nothing => Some(batches.take()),
            InHand::Folios => batches.try_take(),
        };
        let Some(mut batch) = batch else {
            return Evicted::default();
        };
        if enough() {
            return Evicted::default();
        }
        let target = target.max(self.anonymous_batch_pages());
        if !batch.choose(&self.private.windows, target, &enough) {
            self.end(&mut batch);
            return Evicted::default();
        }
        batch.protect(&*self.mmu);
        batch.write(&*self.mmu, self.swap.as_deref());
        let evicted = self.take_out(&mut batch, Taken::Evicted);
        self.end(&mut batch);
        // An empty batch wakes no one: waiters would take it for memory.
        if evicted.folios > 0 {
            self.budget.notify_release();
        }
        evicted
    }

    /// Pages to evict at a time: more than a 64th of a small budget would empty it.
    fn anonymous_batch_pages(&self) -> usize {
        (self.budget.limit() as usize / 64).clamp(16, super::BATCH)
    }

    fn end(&self, batch: &mut PrivateBatch) {
        self.private.windows.done(&batch.windows);
        batch.windows.clear();
    }

    /// Takes the pages of a range of a window out, hot or not, and
    /// waits for their locks; returns how many went. The caller
    /// keeps the memory alive.
    pub(crate) fn take_anonymous(
        &self,
        anon: &Anonymous,
        range: Range<usize>,
        taken: Taken,
    ) -> usize {
        let mut from = range.start;
        let mut pages = 0;
        while from < range.end {
            let mut batch = self.private.batches.take();
            from = batch.take(Busy::of(anon), from..range.end, taken);
            if taken == Taken::Evicted {
                batch.protect(&*self.mmu);
                batch.write(&*self.mmu, self.swap.as_deref());
            }
            pages += self.take_out(&mut batch, taken).folios;
            batch.windows.clear();
            self.budget.notify_release();
        }
        pages
    }

    /// Zaps those that go, and unlocks all.
    fn take_out(&self, batch: &mut PrivateBatch, taken: Taken) -> Evicted {
        // Zeros are not among the pages that are there to be evicted: they cost nothing.
        let costs = |victim: &&Victim| !victim.state.is_zero();
        let looked_at = batch.victims.iter().filter(costs).count();
        batch.rescue(taken, self);
        if taken == Taken::Evicted && self.mmu.sees_pins() {
            batch.spare_pinned(self);
        }
        batch.count_out();
        if !batch.ranges.is_empty() {
            self.mmu.zap(&batch.ranges);
        }
        let tables = batch.tables.len();
        for (window, table) in batch.tables.drain(..) {
            batch.windows[window]
                .get()
                .window
                .zapped(&table, &self.budget);
        }
        let gone = batch.victims.iter().filter(|victim| victim.goes()).count();
        let age = match taken {
            Taken::Evicted => self.next_age(gone),
            Taken::Forgotten => 0,
        };
        let mut charged = 0;
        for victim in batch.victims.drain(..) {
            let anon = batch.windows[victim.window].get();
            if victim.goes() && !victim.state.is_zero() {
                charged += 1;
            }
            settle(self, anon, &victim, taken, age);
        }
        self.stats.evicted.add(gone as u64);
        self.private.uncharged(charged);
        // The next slots' words: when they are wanted, the budget is full.
        let kept = match &self.swap {
            Some(swap) => swap.slots.prepare_from(charged),
            None => 0,
        };
        self.budget.uncharge(charged - kept);
        Evicted {
            looked_at,
            folios: gone,
            pages: (charged - kept) as usize + tables,
        }
    }
}

impl Victim {
    /// True if it leaves the window.
    fn goes(&self) -> bool {
        self.state.is_resident() && !matches!(self.fate, EvictOutcome::Writes | EvictOutcome::Stays)
    }
}

/// Unlocks a page with its new state.
fn settle(node: &Node, anon: &Anonymous, victim: &Victim, taken: Taken, age: u32) {
    let Victim { page, state, .. } = *victim;
    let after = match (victim.fate, taken) {
        (EvictOutcome::Drops, Taken::Forgotten) | (EvictOutcome::Vanished, _) => {
            if !state.is_resident() {
                anon.forget_read(page);
            }
            anon.put_slot(anon.pages.slot(page));
            anon.pages.set_slot(page, None);
            state.to_absent()
        }
        (EvictOutcome::Drops, Taken::Evicted) => {
            if let Some(swap) = &node.swap {
                swap.stats.clean_drops.add(1);
            }
            match anon.pages.slot(page) {
                Some(_) => state.to_swapped(age),
                None => state.to_absent(),
            }
        }
        (EvictOutcome::Written(slot), _) => {
            anon.pages.set_slot(page, Some(slot));
            state.to_swapped(age)
        }
        (EvictOutcome::Stays, _) => match state.is_clean() || anon.pages.slot(page).is_none() {
            true => state,
            // Rescued: it has been written.
            false => state.to_clean(),
        },
        (EvictOutcome::Writes, _) => unreachable!("a page that has to be written was, or stays"),
    };
    anon.pages.unlock(page, after);
}

impl PrivateBatch {
    /// A page that a thread waits for stays: it would be read back at once.
    fn rescue(&mut self, taken: Taken, node: &Node) {
        if taken == Taken::Forgotten {
            return;
        }
        for victim in &mut self.victims {
            let pages = &self.windows[victim.window].get().pages;
            if !pages.is_waited_for(victim.page) {
                continue;
            }
            match (victim.fate, &node.swap) {
                // A device may be writing to it.
                (EvictOutcome::Written(slot), Some(swap)) if node.mmu.sees_pins() => swap.put(slot),
                (EvictOutcome::Written(slot), _) => pages.set_slot(victim.page, Some(slot)),
                _ => {}
            }
            if victim.fate != EvictOutcome::Stays {
                victim.fate = EvictOutcome::Stays;
                if let Some(swap) = &node.swap {
                    swap.stats.rescued.add(1);
                }
            }
        }
    }

    /// A page that a device may be writing to stays dirty: its slot's bytes may be older.
    fn spare_pinned(&mut self, node: &Node) {
        let Self {
            victims,
            windows,
            pinned,
            ..
        } = self;
        pinned.clear();
        // A clean page was not writable for any device.
        let written = |victim: &&mut Victim| matches!(victim.fate, EvictOutcome::Written(_));
        for victim in victims.iter_mut().filter(written) {
            pinned.push(WrittenPage {
                window: windows[victim.window].get().window.reservation().clone(),
                addr: victim.addr,
                sum: victim.sum,
                stays: false,
            });
        }
        node.mmu.spare_pinned(pinned);
        let written = victims.iter_mut().filter(written);
        for (victim, page) in written.zip(pinned) {
            if let (EvictOutcome::Written(slot), true, Some(swap)) =
                (victim.fate, page.stays, &node.swap)
            {
                swap.put(slot);
                victim.fate = EvictOutcome::Stays;
            }
        }
    }

    /// Counts those that go out of their page tables, and collects the ranges to zap.
    fn count_out(&mut self) {
        let Self {
            victims,
            windows,
            ranges,
            tables,
            ..
        } = self;
        ranges.clear();
        tables.clear();
        let mut group: Option<(usize, usize, usize)> = None;
        let mut leave = |group: Option<(usize, usize, usize)>, ranges: &mut Vec<Range<usize>>| {
            let Some((window, addr, pages)) = group else {
                return;
            };
            let table = windows[window].get().window.leave(addr, pages);
            let Some(table) = table else { return };
            // One range for all of it.
            let is_within = |last: &Range<usize>| table.start <= last.start;
            while ranges
                .last()
                .is_some_and(|last| is_within(last) && last.start < table.end)
            {
                ranges.pop();
            }
            ranges.push(table.clone());
            tables.push((window, table));
        };
        for victim in victims.iter().filter(|victim| victim.goes()) {
            let span = victim.addr & !(TABLE_SPAN - 1);
            match &mut group {
                Some((window, addr, pages))
                    if *window == victim.window && *addr & !(TABLE_SPAN - 1) == span =>
                {
                    *pages += 1;
                }
                _ => {
                    leave(group.take(), ranges);
                    group = Some((victim.window, victim.addr, 1));
                }
            }
            let end = victim.addr + PAGE_SIZE;
            match ranges.last_mut() {
                Some(last) if last.end == victim.addr => last.end = end,
                _ => ranges.push(victim.addr..end),
            }
        }
        leave(group.take(), ranges);
    }
}
