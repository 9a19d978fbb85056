//! Writing back the dirty pages of folios that the caller has locked, in the order of the file.
//!
//! ```text
//!   Locks::GivenUp   protect, copy, clear the bits, writeback, unlock: some that lie together after the other
//!                    ─► the store writes all copies ─► end of writeback
//!   Locks::Kept      protect, clear the bits ─► the store writes from the window ─► the caller unlocks
//! ```
//!
//! Where a system call would wait for a page that the program has thrown away (`Mmu::calls_wait`), copies are written in both. In both, pages that the store refuses are dirty again afterwards. The copies are in pages that each batch has for that, and the
//! budget is charged for. Folios that are about to go stay locked: eviction has the coldest, and no thread is to
//! write to pages that truncate cuts off.

use super::copies::Copies;
use super::evict::BATCH;
use crate::PAGE_SIZE;
use crate::cache::folio::{BLOCK_PAGES, Folio, flag};
use crate::cache::reads::unlocked;
use crate::cache::{Node, PageCache, Writes};
use crate::page::NeverInterrupted;
use crate::stage::Stage;
use crate::store::{PageWrite, StoreError};
use core::ops::Range;

/// Pages of one call of the store: a MiB of neighbours, or as many requests for a device at a
/// time as it can use.
pub(super) const PAGES: usize = 256;

/// Folios of a batch, with their neighbours.
const MOST: usize = 3 * BATCH;
/// Neighbours of one folio, at most.
const CLUSTER: usize = 16;

/// Ranges to protect, up to which each is protected by itself.
const FEW: usize = 4;
/// Ranges that may have other pages in them, above which reclaim protects the whole window.
const SCATTERED: usize = 32;
/// Bytes between two pages, up to which one range has both and the pages between: writable ones of these fault once more, and
/// that costs less than another flush of all TLBs.
const GAP: usize = 512 * PAGE_SIZE;

/// The result of a page that was not there to be copied. No store has written anything by then.
const GONE: StoreError = StoreError::Short;
/// The result of a page that lies behind the store's end.
const CUT_OFF: StoreError = StoreError::Short;

/// The list of pages to write: too large for the handler's stack.
pub(super) struct WriteBatch {
    /// The dirty folios that the caller has locked.
    folios: Box<[u32]>,
    /// That, and neighbours that are dirty too, in the order of the file.
    all: Box<[u32]>,
    /// Which pages of each of them are being written: a bit a page.
    sent: Box<[u32]>,
    /// The neighbours.
    neighbours: Box<[u32]>,
    ranges: Box<[Range<usize>]>,
    pages: Box<[PageWrite]>,
    copies: Option<Copies>,
}

impl WriteBatch {
    /// For copies of so many pages; `None` where the system has no memory for them.
    pub(super) fn new(copies: usize) -> Option<Self> {
        let page = PageWrite {
            offset: 0,
            page: core::ptr::null(),
            result: Ok(()),
        };
        let copies = match copies {
            0 => None,
            some => Some(Copies::new(some)?),
        };
        Some(Self {
            folios: vec![0; BATCH].into(),
            all: vec![0; MOST].into(),
            sent: vec![0; MOST].into(),
            neighbours: vec![0; MOST - BATCH].into(),
            ranges: vec![0..0; PAGES].into(),
            pages: vec![page; PAGES].into(),
            copies,
        })
    }

    /// Pages of a write batch, with so many copies.
    pub(super) const fn pages(copies: usize) -> usize {
        let bytes = 3 * MOST * size_of::<u32>()
            + PAGES * (size_of::<Range<usize>>() + size_of::<PageWrite>());
        bytes.div_ceil(PAGE_SIZE) + copies
    }

    /// Pages that can be copied at a time; none where pages are written from the window only.
    pub(super) fn room(&self) -> usize {
        self.copies.as_ref().map_or(0, Copies::pages)
    }
}

/// The pages to write, as they are collected.
struct Noted<'a> {
    all: &'a mut [u32],
    neighbours: &'a mut [u32],
    total: usize,
    beside: usize,
    /// Pages that neighbours may have.
    room: usize,
}

impl Noted<'_> {
    /// True if there may be another neighbour, of `most` folios in all.
    fn has_room(&self, most: usize) -> bool {
        self.total < most && self.beside < self.neighbours.len()
    }

    fn add(&mut self, folio: &Folio) {
        self.all[self.total] = folio.id();
        self.total += 1;
    }

    fn add_neighbour(&mut self, folio: &Folio) {
        self.add(folio);
        self.neighbours[self.beside] = folio.id();
        self.beside += 1;
        self.room -= folio.dirty_pages().count_ones() as usize;
    }
}

/// The treatment of pages that their store does not have, when their folio is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// They are written; pages that cannot be written stay.
    Written,
    /// Nobody wants them any more.
    Dropped,
}

/// In which order folios come to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOrder {
    /// That of the file: pages that lie together come together, and hot ones among them.
    File,
    /// As reclaim takes them, all over the file. They are cold: once their window is protected, so are those that come next. That takes
    /// 0.2 µs for each page that is present, and hot pages fault once more.
    Reclaim,
}

/// The folio locks while the store writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locks {
    /// The folios stay locked.
    Kept,
    /// They are given up once the pages are copied; and the references to the folios when these are written.
    GivenUp,
}

impl Node {
    /// Writes back the dirty pages of these folios, which the caller has locked, and keeps the locks. Pages that are dirty
    /// afterwards are pinned, or could not be written; their cache has the error.
    pub(super) fn write_back(&self, folios: &[u32], batch: &mut WriteBatch) {
        let mut count = 0;
        for &id in folios {
            if self.folios.get(id).is(flag::DIRTY) {
                batch.folios[count] = id;
                count += 1;
            }
        }
        let (count, neighbours) = self.with_neighbours(count, batch, usize::MAX);
        let most = match self.mmu.calls_wait() {
            true => batch.room(),
            false => PAGES,
        };
        let mut first = 0;
        while first < count {
            let cache = self.folios.get(batch.all[first]).cache();
            let (mut end, mut pages) = (first, 0);
            while end < count && pages + BLOCK_PAGES <= most {
                let folio = self.folios.get(batch.all[end]);
                if !core::ptr::eq(folio.cache(), cache) {
                    break;
                }
                pages += folio.dirty_pages().count_ones() as usize;
                end += 1;
            }
            self.write_pages(cache, first..end, batch, (Locks::Kept, WriteOrder::Reclaim));
            first = end;
        }
        for &id in &batch.neighbours[..neighbours] {
            let folio = self.folios.get(id);
            folio.unlock();
            self.put(folio);
        }
    }

    /// Writes back the dirty pages of these folios, which the caller has locked, and unlocks them as soon as it can; the caller's
    /// reference to each goes at the end. None of them is `writeback`. Where the write batch has room for copies, all are of one cache,
    /// and their dirty pages find room there. Answers how many of them, and of their neighbours, are clean then.
    pub(super) fn clean(&self, folios: &[u32], batch: &mut WriteBatch, order: WriteOrder) -> usize {
        if batch.room() > 0 && self.mmu.can_copy_out() {
            return self.write_copies(folios, batch, order);
        }
        self.write_back(folios, batch);
        let mut clean = 0;
        for &id in folios {
            let folio = self.folios.get(id);
            clean += usize::from(!folio.is(flag::DIRTY));
            folio.unlock();
            self.put(folio);
        }
        clean
    }

    /// The same, of copies.
    fn write_copies(&self, folios: &[u32], batch: &mut WriteBatch, order: WriteOrder) -> usize {
        let Some(&first) = folios.first() else {
            return 0;
        };
        batch.folios[..folios.len()].copy_from_slice(folios);
        let dirty = |&id: &u32| self.folios.get(id).dirty_pages().count_ones() as usize;
        let room = batch.room() - folios.iter().map(dirty).sum::<usize>();
        let cache = self.folios.get(first).cache();
        let (count, _) = self.with_neighbours(folios.len(), batch, room);
        self.write_pages(cache, 0..count, batch, (Locks::GivenUp, order))
    }

    /// Sorts the first `count` folios of the write batch, and adds dirty neighbours, up to `room` pages: a device that gets pages in a
    /// row does more of them, and dirty neighbours have to be written some day, too. Returns the number of folios to
    /// write, and how many of them are neighbours, which this has locked, with a reference.
    fn with_neighbours(&self, count: usize, batch: &mut WriteBatch, room: usize) -> (usize, usize) {
        let WriteBatch {
            folios,
            all,
            neighbours,
            ..
        } = batch;
        let start = |&id: &u32| self.folios.get(id).range().start;
        folios[..count].sort_unstable_by_key(start);
        let mut noted = Noted {
            all,
            neighbours,
            total: 0,
            beside: 0,
            room,
        };
        for (place, &id) in folios[..count].iter().enumerate() {
            let folio = self.folios.get(id);
            let window = folio.cache().addresses();
            // The others that were asked for have a place each.
            let most = (noted.total + CLUSTER).min(MOST - (count - place));
            let first = noted.total;
            let mut start = folio.range().start;
            while start > window.start
                && noted.has_room(most)
                && let Some(before) = self.claim_dirty(start - PAGE_SIZE, noted.room)
            {
                noted.add_neighbour(before);
                start = before.range().start;
            }
            noted.all[first..noted.total].reverse();
            noted.add(folio);
            let mut end = folio.range().end;
            while end < window.end
                && noted.has_room(most)
                && let Some(behind) = self.claim_dirty(end, noted.room)
            {
                noted.add_neighbour(behind);
                end = behind.range().end;
            }
        }
        (noted.total, noted.beside)
    }

    /// Locks the folio of the page at `addr`, if it is dirty, with at most `room` pages, and nobody has it; with a reference.
    fn claim_dirty(&self, addr: usize, room: usize) -> Option<&Folio> {
        let bucket = self.index.lock(addr, &self.folios);
        let folio = bucket.find(addr)?;
        let is_free = folio.state() & (flag::DIRTY | flag::LOCKED) == flag::DIRTY;
        if !is_free || folio.is_writeback() || folio.is_pinned() || !folio.try_lock() {
            return None;
        }
        // Another may have begun to write it since.
        if folio.is_writeback() || folio.dirty_pages().count_ones() as usize > room {
            folio.unlock();
            return None;
        }
        bucket.get(folio);
        Some(folio)
    }

    /// Writes the dirty pages of some folios of the write batch, all of one cache. Where locks are given up it answers how many folios are clean
    /// then, as of some moment.
    fn write_pages(
        &self,
        cache: &PageCache,
        which: Range<usize>,
        batch: &mut WriteBatch,
        (locks, order): (Locks, WriteOrder),
    ) -> usize {
        if order == WriteOrder::Reclaim {
            self.protect_scattered(cache, &batch.all[which.clone()], &mut batch.ranges);
        }
        let (mut count, mut taken, mut next) = (0, 0, which.start);
        while next < which.end {
            let first = next;
            next = match locks {
                Locks::Kept => which.end,
                // No page is protected for long before its folio is unlocked.
                Locks::GivenUp => self.close_by(&batch.all[..which.end], first),
            };
            self.protect_folios(cache, &batch.all[first..next], &mut batch.ranges);
            let from = count;
            for place in first..next {
                self.note(cache, place, batch, &mut count);
            }
            let copied = locks == Locks::GivenUp || self.mmu.calls_wait();
            self.take(cache, from..count, batch, copied);
            let mut at = from;
            for place in first..next {
                let folio = self.folios.get(batch.all[place]);
                let (sent, left) = self.send(folio, (place, &mut at), batch, &mut taken);
                batch.sent[place] = sent;
                match locks {
                    Locks::Kept => cache.end_dirty(folio, sent | left),
                    Locks::GivenUp => {
                        cache.begin_writeback(folio, sent, left);
                        folio.unlock();
                    }
                }
            }
        }
        let pages = &mut batch.pages[..taken];
        let writes = cache.writes.as_ref().expect("it has been written to");
        if taken > 0 {
            let _stage = Stage::WriteOut.span();
            // SAFETY: copies, which are this thread's; or pages that are mapped, and stay: their folios are locked.
            unsafe { writes.to().write(pages, cache.end()) };
        }
        let (mut results, mut clean) = (pages.iter(), 0);
        for place in which {
            let (folio, sent) = (self.folios.get(batch.all[place]), batch.sent[place]);
            let (mut done, mut failed) = (0, 0);
            // Pinned, it may be written to all the time.
            let unpinned = |addr| match folio.is_pinned() {
                true => 0,
                false => folio.bit_of(addr),
            };
            for (addr, page) in addresses(folio, sent).zip(results.by_ref()) {
                match page.result {
                    Ok(()) => {
                        self.stats.written_back.add(1);
                        done |= unpinned(addr);
                    }
                    // The program has thrown it away.
                    Err(_) if locks == Locks::Kept && self.mmu.is_missing(addr) => {
                        done |= folio.bit_of(addr);
                    }
                    // It goes nowhere, now and later. That others have cut it off is told; this process knows of its own cuts.
                    Err(CUT_OFF) => {
                        if cache.offset(addr) < cache.end() {
                            self.refused(writes, CUT_OFF);
                        }
                        done |= unpinned(addr);
                    }
                    Err(error) => {
                        self.refused(writes, error);
                        failed |= folio.bit_of(addr);
                    }
                }
            }
            match locks {
                Locks::Kept => cache.end_dirty(folio, folio.dirty_pages() & !done),
                Locks::GivenUp => {
                    clean += usize::from(self.end_writeback(cache, folio, sent, failed))
                }
            }
        }
        if locks == Locks::GivenUp {
            self.wake_writeback_waiters();
        }
        clean
    }

    /// Notes the pages of the folio at `place` that are to be written, behind the first `count` pages of the sheet. No thread can
    /// write to them, unless they are pinned. The caller holds the folio's lock.
    fn note(&self, cache: &PageCache, place: usize, batch: &mut WriteBatch, count: &mut usize) {
        let folio = self.folios.get(batch.all[place]);
        // Pages that were only expected to be written to are in the store as they are.
        let unwritten = cache.unwritten(folio);
        batch.sent[place] = 0;
        for addr in addresses(folio, folio.dirty_pages() & !unwritten) {
            let offset = cache.offset(addr);
            // Bytes behind the end do not belong to the file, even if the store has some.
            if offset < cache.end() {
                batch.pages[*count].offset = offset;
                batch.sent[place] |= folio.bit_of(addr);
                *count += 1;
            }
        }
    }

    /// Notes where the bytes of noted pages are. If these are to be `copied`, one call copies as many pages as it can. The caller
    /// holds the locks of their folios.
    fn take(&self, cache: &PageCache, which: Range<usize>, batch: &mut WriteBatch, copied: bool) {
        let window = cache.window.reservation();
        let WriteBatch {
            pages,
            ranges,
            copies,
            ..
        } = batch;
        let Some(copies) = copies.as_ref().filter(|_| copied) else {
            for page in &mut pages[which] {
                page.page = self.mmu.bytes(window, cache.address(page.offset));
                page.result = Ok(());
            }
            return;
        };
        let mut next = which.start;
        while next < which.end {
            let left = pages[next..which.end].iter();
            let left = left.map(|page| cache.address(page.offset));
            let count = left.fold(0, |count, addr| add_range(ranges, count, addr, 0));
            let ranges = &ranges[..count];
            // SAFETY: pages of the write batch, as many as are to be copied, which nobody else has.
            let copied = unsafe { self.mmu.copy_out_all(window, ranges, copies.page(next)) };
            for _ in 0..copied {
                pages[next].page = copies.page(next).cast_const();
                pages[next].result = Ok(());
                next += 1;
            }
            if next < which.end {
                let (page, to) = (&mut pages[next], copies.page(next));
                page.page = to.cast_const();
                // SAFETY: as above.
                let copied = unsafe { self.mmu.copy_out(window, cache.address(page.offset), to) };
                page.result = match copied {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(GONE),
                    Err(errno) => Err(StoreError::Io(errno)),
                };
                next += 1;
            }
        }
    }

    /// Answers which noted pages of the folio at `place` are written, and which of its pages stay dirty. Pages that could not be
    /// copied are taken out of the write batch: the pages of the folio are there from `at` on, and come behind the first `taken`. The
    /// caller holds its lock.
    fn send(
        &self,
        folio: &Folio,
        (place, at): (usize, &mut usize),
        batch: &mut WriteBatch,
        taken: &mut usize,
    ) -> (u32, u32) {
        let (cache, dirty) = (folio.cache(), folio.dirty_pages());
        let (mut sent, mut gone, mut refused) = (0, 0, 0);
        for addr in addresses(folio, batch.sent[place]) {
            let (page, bit) = (batch.pages[*at], folio.bit_of(addr));
            *at += 1;
            match page.result {
                Ok(()) => {
                    batch.pages[*taken] = page;
                    *taken += 1;
                    sent |= bit;
                }
                // The program has thrown it away.
                Err(GONE) => gone |= bit,
                Err(error) => {
                    let writes = cache.writes.as_ref().expect("it has been written to");
                    self.refused(writes, error);
                    refused |= bit;
                }
            }
        }
        if folio.is_pinned() {
            return (sent, dirty & !gone);
        }
        self.end_expected(folio);
        (sent, refused)
    }

    /// A page could not be written.
    fn refused(&self, writes: &Writes, error: StoreError) {
        writes.note(error);
        self.stats.write_errors.add(1);
    }

    /// Where the folios end that lie close to that at `first`, and to each other.
    fn close_by(&self, all: &[u32], first: usize) -> usize {
        let range = |place: usize| self.folios.get(all[place]).range();
        let is_far = |&place: &usize| range(place).start - range(place - 1).end > GAP;
        (first + 1..all.len()).find(is_far).unwrap_or(all.len())
    }

    /// The dirty pages of some folios of one cache that somebody may write to, as ranges that have all of them; how many ranges.
    fn note_writable_ranges(
        &self,
        cache: &PageCache,
        folios: &[u32],
        ranges: &mut [Range<usize>],
        gap: usize,
    ) -> usize {
        let folios = folios.iter().map(|&id| self.folios.get(id));
        let writable = folios.filter(|folio| !folio.is_pinned() && !cache.is_protected(folio));
        let pages = writable.flat_map(|folio| addresses(folio, folio.dirty_pages()));
        pages.fold(0, |count, addr| add_range(ranges, count, addr, gap))
    }

    /// Protects the whole window of some folios, if many of their pages may be written to, and far from each other. The caller holds
    /// their locks.
    fn protect_scattered(&self, cache: &PageCache, folios: &[u32], ranges: &mut [Range<usize>]) {
        let close = self.note_writable_ranges(cache, folios, ranges, GAP);
        if close > SCATTERED && close > folios.len() / 2 {
            cache.protect_window();
        }
    }

    /// Lets nobody write to the dirty pages of some folios of one cache, but to those that are pinned. The caller holds their locks.
    fn protect_folios(&self, cache: &PageCache, folios: &[u32], ranges: &mut [Range<usize>]) {
        let mut count = self.note_writable_ranges(cache, folios, ranges, 0);
        if count > FEW {
            let close = self.note_writable_ranges(cache, folios, ranges, GAP);
            if cache.while_unpinned(|| self.mmu.protect(&ranges[..close])) {
                return;
            }
            count = self.note_writable_ranges(cache, folios, ranges, 0);
        }
        if count > 0 {
            self.mmu.protect(&ranges[..count]);
        }
    }

    /// The write of copies of a folio's pages is over, and so is the reference to it. True if it is clean. The caller wakes all waiters
    /// for that.
    fn end_writeback(&self, cache: &PageCache, folio: &Folio, sent: u32, failed: u32) -> bool {
        if failed == 0 {
            cache.end_writeback(folio, sent, 0);
        } else {
            // This thread has a batch. The folio is mapped: a thread that has it locked waits neither for the end of a write-back nor
            // for a batch. Read-ahead does wait for one with folios locked, but these are read, or are to be.
            while !folio.try_lock() {
                unlocked(cache, folio, &NeverInterrupted);
            }
            cache.end_writeback(folio, sent, failed);
            folio.unlock();
        }
        let is_clean = !folio.is(flag::DIRTY);
        // From here on the cache may go.
        folio.set_writeback(false);
        self.put(folio);
        is_clean
    }
}

/// Adds a page to the ranges, of which there are `count`; how many there are then. It lies behind all of them, and belongs to the
/// last one if that ends at most `gap` bytes before it.
fn add_range(ranges: &mut [Range<usize>], count: usize, addr: usize, gap: usize) -> usize {
    let end = addr + PAGE_SIZE;
    match ranges[..count].last_mut() {
        Some(last) if addr - last.end <= gap => last.end = end,
        _ => {
            ranges[count] = addr..end;
            return count + 1;
        }
    }
    count
}

/// The pages of a folio whose bits are set.
fn addresses(folio: &Folio, bits: u32) -> impl Iterator<Item = usize> + use<> {
    let addresses = folio.range().step_by(PAGE_SIZE).enumerate();
    addresses.filter_map(move |(page, addr)| (bits >> page & 1 == 1).then_some(addr))
}
