//! A window: the address space that shows one backing, and what is resident
//! in it.
//!
//! Linux frees a page table only when its whole 2 MiB are zapped, so residents
//! are counted for each 2 MiB range. The first pays for the page table; when
//! reclaim takes the last, it zaps the whole range and the table is paid back.
//!
//! The range word is `0..=512` residents, or `ZAPPING` while the range is
//! being zapped whole: nothing may be mapped into it until that is over, and
//! nothing is, since a mapper counts itself in before it maps.

use crate::PAGE_SIZE;
use crate::budget::Budget;
use crate::mmu::{Mmu, Reservation, TABLE_SPAN};
use core::ops::Range;
use core::ptr::NonNull;
use sync::atomic::Ordering;
use sync::wait::WaitWord;

const ZAPPING: u32 = 1 << 31;
/// Words a page of the table; the first counts whether the page is paid for.
const WORDS: usize = PAGE_SIZE / size_of::<WaitWord>();
/// Words of a cache line; one where they have not their real size.
const WORDS_A_LINE: usize = if size_of::<WaitWord>() == 4 { 16 } else { 1 };
/// Lines of a page.
const LINES: usize = WORDS / WORDS_A_LINE;
/// What comes with a page of the table: itself, and the two page tables of the
/// next level for the 2 GiB that it counts. Linux keeps those until the window
/// goes.
pub(crate) const TABLE_PAGES: u64 = 3;

/// Where a page of the table has its word number `word`: neighbours on lines of
/// their own, for neighbouring ranges are often filled by several threads.
const fn place(word: usize) -> usize {
    word % LINES * WORDS_A_LINE + word / LINES
}

/// What a mapper learns when it counts itself in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enter {
    /// Counted; the page table is there or is paid for.
    Entered,
    /// The budget has no page for the page table.
    NoMemory,
    /// Another thread is zapping the range: wait, then look again.
    Zapping,
}

/// A reservation and its residents.
pub struct Window {
    reservation: Reservation,
    /// A word a range, [`WORDS`] - 1 of them a page; zeroed, and resident only
    /// where touched.
    words: NonNull<WaitWord>,
    bytes: usize,
}

// SAFETY: the words are atomics; the table is given back only on drop.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// A window over `reservation`. `None` where the system has no memory.
    pub fn new(reservation: Reservation) -> Option<Self> {
        let ranges = reservation.bytes.div_ceil(TABLE_SPAN);
        let bytes = ranges.div_ceil(WORDS - 1) * PAGE_SIZE;
        let words = sync::pages::map(bytes)?.cast();
        Some(Self {
            reservation,
            words,
            bytes,
        })
    }

    /// The reservation.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Bytes of the table of ranges, if all were touched.
    pub fn table_bytes(&self) -> usize {
        self.bytes
    }

    fn slot(&self, addr: usize) -> (&WaitWord, &WaitWord) {
        assert!(self.reservation.range().contains(&addr));
        let range = (addr - self.reservation.addr) / TABLE_SPAN;
        let page = range / (WORDS - 1) * WORDS;
        let word = page + place(1 + range % (WORDS - 1));
        // SAFETY: the table has a word for each range of the reservation, as
        // just asserted; zeroed memory is a valid word.
        unsafe { (self.words.add(page).as_ref(), self.words.add(word).as_ref()) }
    }

    /// Counts `pages` residents in. Everything that comes with the first of a
    /// range (the page table, a page of this table) is charged.
    pub fn enter(&self, addr: usize, pages: usize, budget: &Budget, reserve: u64) -> Enter {
        let (paid, word) = self.slot(addr);
        if paid.load(Ordering::Relaxed) == 0 {
            if !budget.try_charge(TABLE_PAGES, reserve) {
                return Enter::NoMemory;
            }
            if paid.swap(1, Ordering::Relaxed) != 0 {
                budget.uncharge(TABLE_PAGES);
            }
        }
        let mut now = word.load(Ordering::Relaxed);
        loop {
            if now == ZAPPING {
                return Enter::Zapping;
            }
            if now == 0 && !budget.try_charge(1, reserve) {
                return Enter::NoMemory;
            }
            // Acquire pairs with the Release in `zapped`: what is mapped from
            // here on comes after the zap.
            match word.compare_exchange(
                now,
                now + pages as u32,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Enter::Entered,
                Err(changed) => {
                    if now == 0 {
                        budget.uncharge(1);
                    }
                    now = changed;
                }
            }
        }
    }

    /// Counts `pages` residents out. Returns the whole range if they were the
    /// last: the caller zaps it and then calls [`zapped`](Self::zapped).
    pub fn leave(&self, addr: usize, pages: usize) -> Option<Range<usize>> {
        let (_, word) = self.slot(addr);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            assert!(now & ZAPPING == 0 && now >= pages as u32, "range count");
            let after = match now - pages as u32 {
                0 => ZAPPING,
                some => some,
            };
            // Release pairs with the same exchange of the thread that takes
            // the last: its zap comes after all that was mapped here.
            match word.compare_exchange(now, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if after == ZAPPING => return Some(self.table_range(addr)),
                Ok(_) => return None,
                Err(changed) => now = changed,
            }
        }
    }

    /// The range that `leave` returned has been zapped (`range` is it, or a
    /// part of it): its page table is paid back and the range may be mapped
    /// into again.
    pub fn zapped(&self, range: &Range<usize>, budget: &Budget) {
        let (_, word) = self.slot(range.start);
        // Release pairs with the Acquire in `enter`.
        let before = word.swap(0, Ordering::Release);
        assert_eq!(before, ZAPPING, "a range is zapped once");
        word.wake(u32::MAX);
        budget.uncharge(1);
    }

    /// Counts `pages` residents out that were counted in and perhaps mapped,
    /// and zaps them: undoes a mapping that failed half-way.
    pub(crate) fn leave_and_zap(&self, addr: usize, pages: usize, mmu: &dyn Mmu, budget: &Budget) {
        match self.leave(addr, pages) {
            Some(table) => {
                mmu.zap(core::slice::from_ref(&table));
                self.zapped(&table, budget);
            }
            None => {
                let range = addr..addr + pages * PAGE_SIZE;
                mmu.zap(core::slice::from_ref(&range));
            }
        }
    }

    /// As `zapped`, if `part` is a whole range that is being zapped. Only for a
    /// caller that nobody else zaps it for.
    pub(crate) fn zapped_if_out(&self, part: &Range<usize>, budget: &Budget) {
        // Relaxed: the caller's own `leave` set it, if it is set.
        let now = self.slot(part.start).1.load(Ordering::Relaxed);
        if now == ZAPPING && *part == self.table_range(part.start) {
            self.zapped(part, budget);
        }
    }

    /// Waits while the range is being zapped, at most `timeout_ns`.
    pub fn wait_zapped(&self, addr: usize, timeout_ns: u64) {
        self.slot(addr).1.wait(ZAPPING, Some(timeout_ns));
    }

    /// Address of byte `offset` from page `pgoff` on.
    #[inline]
    pub fn address(&self, pgoff: u64, offset: usize) -> usize {
        self.reservation.addr + pgoff as usize * PAGE_SIZE + offset
    }

    /// Residents of the range that a page table covers around `addr`; 0 while
    /// it is being zapped whole. Exact while nobody maps or unmaps there.
    pub fn residents(&self, addr: usize) -> usize {
        // Relaxed: whoever needs it exact excludes the others.
        match self.slot(addr).1.load(Ordering::Relaxed) {
            ZAPPING => 0,
            count => count as usize,
        }
    }

    /// The parts of `range` that a page table each covers.
    pub fn spans(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let first = range.start & !(TABLE_SPAN - 1);
        let spans = (first..range.end).step_by(TABLE_SPAN);
        spans.map(move |span| span.max(range.start)..(span + TABLE_SPAN).min(range.end))
    }

    fn table_range(&self, addr: usize) -> Range<usize> {
        let start = addr / TABLE_SPAN * TABLE_SPAN;
        start..(start + TABLE_SPAN).min(self.reservation.range().end)
    }

    /// Pages that are charged for the tables of this window: its own, and page tables.
    /// Exact while nobody maps or unmaps there.
    pub(crate) fn charged_tables(&self) -> u64 {
        let spans = self.spans(self.reservation.range());
        let used = |span: &Range<usize>| self.slot(span.start).1.load(Ordering::Relaxed) != 0;
        let page_tables = spans.filter(used).count() as u64;
        let pages = 0..self.bytes / PAGE_SIZE;
        // SAFETY: within the table.
        let word = |page: usize| unsafe { self.words.add(page * WORDS).as_ref() };
        let paid = pages.filter(|&page| word(page).load(Ordering::Relaxed) != 0);
        page_tables + paid.count() as u64 * TABLE_PAGES
    }

    /// Pays back the pages of this table; the window has no residents.
    pub fn uncharge_table(&self, budget: &Budget) {
        for page in 0..self.bytes / PAGE_SIZE {
            // SAFETY: within the table.
            let paid = unsafe { self.words.add(page * WORDS).as_ref() };
            if paid.swap(0, Ordering::Relaxed) != 0 {
                budget.uncharge(TABLE_PAGES);
            }
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody else has the window any more.
        unsafe { sync::pages::unmap(self.words.cast(), self.bytes) };
    }
}
