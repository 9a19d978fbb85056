//! Evicting a batch of folios.

use super::batches::TakenBatch;
use super::whole::RestOfRow;
use super::write_back::{Dirty, WriteBatch, WriteOrder};
use super::{Heads, Want};
use crate::cache::folio::{BLOCK_PAGES, Folio, flag};
use crate::cache::{FolioRef, Node};
use core::ops::Range;

/// Folios a batch: one zap for all of them. Half of the 1,024 ranges that one
/// `process_madvise` takes, since a folio may need its own and its table's.
pub const BATCH: usize = 512;
/// Pages a batch where some are dirty: the evicting thread waits for the device until all of them are written.
const DIRTY_BATCH: usize = 128;

/// The arrays of a batch: too large for the handler's stack.
pub struct FolioBatch {
    pub(super) folios: [u32; BATCH],
    heads: Heads,
    ranges: [Range<usize>; BATCH],
    /// True where the folio was the last resident of a page table, which is
    /// zapped whole and paid back.
    last_of_table: [bool; BATCH],
    /// Once files are written to.
    pub(super) write_batch: Option<WriteBatch>,
    /// It takes this part of the pages of a batch. Immutable.
    part: usize,
}

impl FolioBatch {
    /// An empty one, which cannot write dirty pages back, for such a part of a batch's pages.
    pub(super) fn new(part: usize) -> Box<Self> {
        Box::new(Self {
            folios: [0; BATCH],
            heads: Heads::UNREAD,
            ranges: [const { 0..0 }; BATCH],
            last_of_table: [false; BATCH],
            write_batch: None,
            part,
        })
    }

    /// True if it can write dirty pages back.
    pub fn can_write(&self) -> bool {
        self.write_batch.is_some()
    }

    /// The list of folios that are to be written back, and the write batch for it.
    pub(super) fn cleaning(&mut self) -> (&mut [u32; BATCH], &mut WriteBatch) {
        let write_batch = self.write_batch.as_mut();
        (&mut self.folios, write_batch.expect("files are written to"))
    }

    /// Pages that can be copied at a time.
    fn room(&self) -> usize {
        self.write_batch.as_ref().map_or(0, WriteBatch::room)
    }
}

/// Whether evicted pages are remembered, so that one that is read again soon is known to have been evicted too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ghosts {
    /// Memory was needed.
    Left,
    /// Their owner does not want them, as in truncate_inode_pages(): whether memory is short they do not tell.
    None,
}

/// The result of one batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Evicted {
    /// Folios that were isolated. None: the lists are empty.
    pub(super) looked_at: usize,
    /// Folios that were evicted.
    pub(super) folios: usize,
    /// Pages that the budget got back.
    pub(super) pages: usize,
}

impl Node {
    /// Pages to evict at a time: few would pay a shootdown each, and many
    /// would empty a small budget.
    pub(super) fn batch_pages(&self) -> usize {
        let share = self.budget.limit() as usize / 32;
        let most = match self.dirty_pages() {
            0 => 2 * BATCH,
            _ => DIRTY_BATCH,
        };
        share.clamp(BLOCK_PAGES, most)
    }

    /// Evicts about `target` pages of those that go first, or a batch of them if
    /// that is more. Does nothing if there is `enough` once it is this
    /// thread's turn: others have evicted meanwhile.
    pub(super) fn evict(&self, want: Want, target: usize, enough: impl Fn() -> bool) -> Evicted {
        let mut batch = self.lru.batches.take();
        if enough() {
            return Evicted::default();
        }
        let target = target.max(self.batch_pages() / batch.part);
        // Read ahead, and a quarter of all memory was mapped since.
        let stale = self.budget.limit() as u32 / 4;
        let FolioBatch { folios, heads, .. } = &mut **batch;
        let isolated = (self.lru.lists).isolate(&self.folios, want, stale, target, heads, folios);
        let mut claimed = 0;
        for place in 0..isolated {
            let folio = self.folios.get(batch.folios[place]);
            if self.claim(folio) {
                batch.folios[claimed] = folio.id();
                claimed += 1;
            }
        }
        let claimed = self.settle_dirty(&mut batch, claimed, Dirty::Written);
        let claimed = self.settle_rows(&mut batch, claimed, RestOfRow::Goes);
        let pages = self.evict_claimed(&mut batch, claimed, Ghosts::Left);
        if self.dirty_pages() > 0 {
            self.ring_for_cleaning();
        }
        // Threads wait for folios and frames too, which may free no page. An empty
        // batch wakes no one: waiters would take it for memory.
        if claimed > 0 {
            self.budget.notify_release();
        }
        Evicted {
            looked_at: isolated,
            folios: claimed,
            pages,
        }
    }

    /// Locks an isolated folio, or puts it back on its list.
    fn claim(&self, folio: &Folio) -> bool {
        let bucket = self.index.lock(folio.range().start, &self.folios);
        // The slot may have been freed and reused since it was isolated. Then
        // it is some other folio: as good as any if it is in the index.
        if !bucket.iter().any(|other| core::ptr::eq(other, folio)) {
            return false;
        }
        if bucket.try_claim(folio) {
            drop(bucket);
            self.lru.lists.remove(&self.folios, folio);
            return true;
        }
        // Pinned, waited for, being mapped or evicted: to the end of its list.
        // Its eviction takes it out of this bucket first, and then off
        // its list. One that is being read is on no list yet: another folio's
        // slot was isolated.
        if folio.state() & (flag::UPTODATE | flag::ERROR) != 0 {
            self.lru.lists.put_back(&self.folios, folio);
        }
        false
    }

    /// Has the dirty pages of the batch written, or dropped; returns how many of its folios are left to be
    /// evicted. The others stay.
    fn settle_dirty(&self, batch: &mut FolioBatch, count: usize, dirty: Dirty) -> usize {
        let is_dirty = |&id: &u32| self.folios.get(id).is(flag::DIRTY);
        if !batch.folios[..count].iter().any(is_dirty) {
            return count;
        }
        if dirty == Dirty::Written {
            let (folios, write_batch) = batch.cleaning();
            self.write_back(&folios[..count], write_batch);
        }
        let mut left = 0;
        for place in 0..count {
            let folio = self.folios.get(batch.folios[place]);
            if folio.is(flag::DIRTY) {
                if dirty == Dirty::Written {
                    self.lru.lists.add(&self.folios, folio);
                    folio.unlock();
                    continue;
                }
                folio.cache().end_dirty(folio, 0);
            }
            batch.folios[left] = folio.id();
            left += 1;
        }
        left
    }

    /// Evicts the first `count` folios of the batch, none of them dirty, which the caller has
    /// locked; returns how many pages the budget got back.
    fn evict_claimed(&self, batch: &mut FolioBatch, count: usize, ghosts: Ghosts) -> usize {
        let (mut ranges, mut tables) = (0, 0);
        let mut charged = 0;
        // Counted once for the batch, since all processors add to these counters.
        let (mut evicted, mut dropped, mut freed) = (0, 0, 0);
        for place in 0..count {
            let folio = self.folios.get(batch.folios[place]);
            let (range, pages) = (folio.range(), folio.pages());
            if !folio.is(flag::MAPPED) {
                self.free_frames(folio);
                continue;
            }
            if !folio.is(flag::HOLE) {
                charged += pages;
            }
            self.end_expected(folio);
            let window = &folio.cache().window;
            let is_whole = window.is_whole(range.start);
            let table = window.leave(range.start, pages);
            batch.last_of_table[place] = table.is_some();
            if is_whole && table.is_none() {
                // With the last of it, in one go.
                continue;
            }
            let range = table.unwrap_or(range);
            // Pages that were mapped in order are evicted in order: one range for a
            // run of folios costs the kernel a good deal less than one each.
            match batch.ranges[..ranges].last_mut() {
                Some(last) if last.start <= range.start && range.start <= last.end => {
                    last.end = last.end.max(range.end);
                }
                Some(last) if range.start <= last.start && last.end <= range.end => {
                    *last = range;
                }
                _ => {
                    batch.ranges[ranges] = range;
                    ranges += 1;
                }
            }
        }
        if ranges > 0 {
            self.mmu.zap(&batch.ranges[..ranges]);
        }
        for place in 0..count {
            let folio = self.folios.get(batch.folios[place]);
            let cache = folio.cache();
            if folio.is(flag::MAPPED) {
                if batch.last_of_table[place] {
                    cache.window.zapped(&folio.range(), &self.budget);
                    tables += 1;
                }
                if !folio.is(flag::HOLE) && ghosts == Ghosts::Left {
                    self.lru.ghosts.remember(folio.range().start, folio.pages());
                }
                evicted += folio.pages();
            } else {
                if self.policies.miss_accounting.remembers_unused() && ghosts == Ghosts::Left {
                    self.lru.ghosts.remember(folio.range().start, folio.pages());
                }
                if folio.is(flag::READAHEAD) {
                    dropped += folio.pages();
                    cache.readahead.lock().unused(folio.pages() as u32);
                }
            }
            // Out of the index, and the lock released for the waiters. The
            // cache may be gone afterwards: only the folio kept it.
            cache.remove(folio);
            folio.unlock();
            freed += usize::from(self.put_uncounted(folio));
        }
        self.count_put(freed);
        self.stats.evicted.add(evicted as u64);
        self.stats.readahead_dropped.add(dropped as u64);
        self.budget.uncharge(charged as u64);
        charged + tables
    }

    /// Starts to evict folios of the caller's choice.
    pub(crate) fn sweep(&self, dirty: Dirty) -> Sweep<'_> {
        Sweep {
            node: self,
            batch: self.lru.batches.take(),
            count: 0,
            dirty,
        }
    }

    /// Starts to write folios of the caller's choice back.
    pub(crate) fn cleaner(&self) -> Cleaner<'_> {
        Cleaner {
            node: self,
            batch: self.lru.batches.take(),
            count: 0,
            pages: 0,
        }
    }
}

/// Evicts folios that its owner has locked, in batches. Wait for no folio
/// while it lives: it holds a batch and the locks of its folios.
pub(crate) struct Sweep<'a> {
    node: &'a Node,
    batch: TakenBatch<'a>,
    count: usize,
    /// The treatment of dirty pages.
    dirty: Dirty,
}

impl Sweep<'_> {
    /// Evicts a folio whose lock the caller has taken, now or with others.
    pub(crate) fn push(&mut self, folio: &Folio) {
        self.batch.folios[self.count] = folio.id();
        self.count += 1;
        if self.count == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let count = (self.node).settle_dirty(&mut self.batch, self.count, self.dirty);
        let count = (self.node).settle_rows(&mut self.batch, count, RestOfRow::Stays);
        self.node
            .evict_claimed(&mut self.batch, count, Ghosts::None);
        self.count = 0;
    }
}

impl Drop for Sweep<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes folios back that its owner has locked, all of them at once when it is dropped. They stay, and may be written to while the
/// store gets copies of them. Wait for no folio while it lives, as of a [`Sweep`].
pub(crate) struct Cleaner<'a> {
    node: &'a Node,
    batch: TakenBatch<'a>,
    count: usize,
    /// Dirty pages of them.
    pages: usize,
}

impl Cleaner<'_> {
    /// Takes a folio of one cache, dirty and not being written, whose lock the caller has taken, and the reference to it.
    pub(crate) fn push(&mut self, folio: FolioRef<'_>) {
        self.pages += folio.dirty_pages().count_ones() as usize;
        self.batch.folios[self.count] = folio.leak().id();
        self.count += 1;
    }

    /// True if a block's folios may be too many more.
    pub(crate) fn is_full(&self) -> bool {
        match self.batch.room() {
            0 => self.count + BLOCK_PAGES > BATCH,
            room => self.pages + BLOCK_PAGES > room,
        }
    }
}

impl Drop for Cleaner<'_> {
    fn drop(&mut self) {
        let (folios, write_batch) = self.batch.cleaning();
        (self.node).clean(&folios[..self.count], write_batch, WriteOrder::File);
    }
}
