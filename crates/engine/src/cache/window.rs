//! A window: the address space that shows one backing, and its resident
//! pages.
//!
//! Linux frees a page table only when its whole 2 MiB are zapped, so residents
//! are counted for each 2 MiB range. The first pays for the page table; when
//! reclaim takes the last, it zaps the whole range and the table is paid back.
//!
//! The range word is `0..=512` residents, or `ZAPPING` while the range is
//! being zapped whole: nothing may be mapped into it until that is over, and
//! nothing is, since a mapper counts itself in before it maps.
//!
//! Beside the count it says `WHOLE` of a range whose pages came as one piece of memory, a huge page as a rule:
//! the system gets nothing back before the last of them goes. So a thread that takes a part of them splits it first.
//!
//! Small windows share a reservation (`arena`): its ranges count the
//! residents of all of them. So the last to leave a range may zap addresses of other
//! windows, where nothing is mapped.
//!
//! **Charges.** The upper page tables and a table of ranges that fits one
//! page are charged to the maker of the window ([`Window::table_pages`]): they are
//! there until it goes. The table of a larger window is charged by the page: the word
//! in front counts the ranges of the page that are in use, as a range word counts
//! residents, and with the last of them the page goes back to the system.

use crate::PAGE_SIZE;
use crate::budget::Budget;
use crate::mmu::{Mmu, Reservation, TABLE_SPAN};
use core::ops::Range;
use core::ptr::NonNull;
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::wait::WaitWord;

const ZAPPING: u32 = 1 << 31;
/// Of a range word: its residents are one piece of memory, which came as a whole.
const WHOLE: u32 = 1 << 30;
/// Words a page of the table; the first counts ranges of the page that are in use.
const WORDS: usize = PAGE_SIZE / size_of::<WaitWord>();
/// Words of a cache line; one where they have not their real size.
const WORDS_A_LINE: usize = if size_of::<WaitWord>() == 4 { 16 } else { 1 };
/// Lines of a page.
const LINES: usize = WORDS / WORDS_A_LINE;
/// Bytes that a page table of the second level covers. Linux keeps those until the
/// window goes.
const UPPER_SPAN: usize = 1 << 30;
/// The most pages that counting in the first residents of a range charges: a page
/// table, and the page of its word.
pub(crate) const TABLE_PAGES: u64 = 2;

/// Where a page of the table has its word number `word`: neighbours on lines of
/// their own, for neighbouring ranges are often filled by several threads.
const fn place(word: usize) -> usize {
    word % LINES * WORDS_A_LINE + word / LINES
}

/// The result of counting residents in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountResult {
    /// Counted; the page table is there or is paid for.
    Counted,
    /// The budget has no page for the page table.
    NoMemory,
    /// Another thread is zapping the range: wait, then look again.
    Zapping,
}

/// A part of a reservation, or all of it, and the residents there.
pub struct Window {
    /// This window's part of the reservation.
    reservation: Reservation,
    /// Memory can be moved in, as far as its mapping goes. Immutable.
    is_for_moves: bool,
    /// It still can. Relaxed: a move that fails reports it.
    takes_moves: AtomicBool,
    /// Immutable; its words are atomics.
    spans: Arc<Spans>,
}

/// The residents of a reservation, by page table.
pub struct Spans {
    /// The reservation.
    range: Range<usize>,
    /// A word a range, [`WORDS`] - 1 of them a page; zeroed, and resident only
    /// where touched.
    words: NonNull<WaitWord>,
    bytes: usize,
}

// SAFETY: the words are atomics; the table is given back only on drop.
unsafe impl Send for Spans {}
// SAFETY: as above.
unsafe impl Sync for Spans {}

impl Spans {
    /// Those of a reservation that has no residents. `None` where the system has no
    /// memory.
    pub fn new(reservation: &Reservation) -> Option<Arc<Self>> {
        let bytes = Self::words_for(reservation.bytes) * PAGE_SIZE;
        Some(Arc::new(Self {
            range: reservation.range(),
            words: sync::pages::map(bytes)?.cast(),
            bytes,
        }))
    }

    /// Pages that are held as long as such a reservation of `bytes` is.
    pub fn table_pages(bytes: usize) -> u64 {
        let words = Self::words_for(bytes);
        (bytes / UPPER_SPAN + 1) as u64 + u64::from(words == 1)
    }

    /// Pages of the table of words.
    fn words_for(bytes: usize) -> usize {
        bytes.div_ceil(TABLE_SPAN).div_ceil(WORDS - 1)
    }

    /// The word in front of a range's page, and the range's own.
    fn slot(&self, addr: usize) -> (&WaitWord, &WaitWord) {
        assert!(self.range.contains(&addr));
        let range = (addr - self.range.start) / TABLE_SPAN;
        let page = range / (WORDS - 1) * WORDS;
        let word = page + place(1 + range % (WORDS - 1));
        // SAFETY: the table has a word for each range of the reservation, as
        // just asserted; zeroed memory is a valid word.
        unsafe { (self.words.add(page).as_ref(), self.words.add(word).as_ref()) }
    }

    /// True if pages of the table come and go.
    fn comes_and_goes(&self) -> bool {
        self.bytes > PAGE_SIZE
    }

    /// Pays for a range's page table, and counts the range into its page of the
    /// table, which the first pays for.
    fn charge_table(&self, front: &WaitWord, budget: &Budget, reserve: u64) -> CountResult {
        if !budget.try_charge(1, reserve) {
            return CountResult::NoMemory;
        }
        if !self.comes_and_goes() {
            return CountResult::Counted;
        }
        let mut now = front.load(Ordering::Relaxed);
        let refused = loop {
            if now == ZAPPING {
                break CountResult::Zapping;
            }
            if now == 0 && !budget.try_charge(1, reserve) {
                break CountResult::NoMemory;
            }
            // Acquire pairs with the Release in `uncharge_table`: words are written to
            // after the page has gone.
            let (set, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match front.compare_exchange(now, now + 1, set, failed) {
                Ok(_) => return CountResult::Counted,
                Err(changed) => {
                    if now == 0 {
                        budget.uncharge(1);
                    }
                    now = changed;
                }
            }
        };
        budget.uncharge(1);
        refused
    }

    /// Pays a range's page table back, and counts the range out of its page of the
    /// table. With the last one the page goes.
    fn uncharge_table(&self, front: &WaitWord, budget: &Budget) {
        budget.uncharge(1);
        if !self.comes_and_goes() {
            return;
        }
        let mut now = front.load(Ordering::Relaxed);
        loop {
            assert!(now & ZAPPING == 0 && now > 0, "a range that was counted");
            let after = match now - 1 {
                0 => ZAPPING,
                some => some,
            };
            // Release pairs with the same exchange of the thread that is the last: the
            // page goes after all words of it are zero.
            match front.compare_exchange(now, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if after == ZAPPING => break,
                Ok(_) => return,
                Err(changed) => now = changed,
            }
        }
        let page = NonNull::from(front).cast();
        // SAFETY: a page of the table, whose words are all zero and stay so: none of
        // its ranges is in use, and none comes to be before the word in front is zero.
        let zeroed = unsafe { sync::pages::discard(page, PAGE_SIZE) };
        if !zeroed {
            // Release pairs with the Acquire in `charge_table`.
            front.swap(0, Ordering::Release);
        }
        front.wake(u32::MAX);
        budget.uncharge(1);
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody else has the table any more.
        unsafe { sync::pages::unmap(self.words.cast(), self.bytes) };
    }
}

impl Window {
    /// A window over all of `reservation`. `None` where the system has no memory.
    pub fn new(reservation: Reservation) -> Option<Self> {
        let spans = Spans::new(&reservation)?;
        Some(Self::part(reservation, spans))
    }

    /// A window over a part of the addresses that `spans` counts.
    pub fn part(reservation: Reservation, spans: Arc<Spans>) -> Self {
        let all = &spans.range;
        assert!(all.start <= reservation.addr && reservation.range().end <= all.end);
        Self {
            reservation,
            is_for_moves: false,
            takes_moves: AtomicBool::new(false),
            spans,
        }
    }

    /// The window, of a reservation that memory can be moved into.
    pub(super) fn with_moves(mut self) -> Self {
        self.is_for_moves = true;
        self.takes_moves.store(true, Ordering::Relaxed);
        self
    }

    /// True if its mapping may be written to, for moves, although it is only read.
    pub(crate) fn is_for_moves(&self) -> bool {
        self.is_for_moves
    }

    /// True while memory can be moved in.
    pub(crate) fn takes_moves(&self) -> bool {
        self.takes_moves.load(Ordering::Relaxed)
    }

    /// No memory can be moved in any more.
    pub(crate) fn end_moves(&self) {
        self.takes_moves.store(false, Ordering::Relaxed);
    }

    /// The part of the reservation that is this window's.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// All of the reservation.
    pub(crate) fn whole(&self) -> Reservation {
        Reservation {
            addr: self.spans.range.start,
            bytes: self.spans.range.len(),
            token: self.reservation.token,
        }
    }

    /// Pages that are held as long as the reservation is: see the header.
    pub fn table_pages(&self) -> u64 {
        Spans::table_pages(self.spans.range.len())
    }

    /// Bytes of the table of ranges, if all were touched.
    pub fn table_bytes(&self) -> usize {
        self.spans.bytes
    }

    fn slot(&self, addr: usize) -> (&WaitWord, &WaitWord) {
        self.spans.slot(addr)
    }

    /// Counts `pages` residents in. The memory that the first of a range needs (the page
    /// table, a page of this table) is charged.
    pub fn enter(&self, addr: usize, pages: usize, budget: &Budget, reserve: u64) -> CountResult {
        let (front, word) = self.slot(addr);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            if now == ZAPPING {
                return CountResult::Zapping;
            }
            if now == 0 {
                match self.spans.charge_table(front, budget, reserve) {
                    CountResult::Counted => {}
                    refused => return refused,
                }
            }
            // Acquire pairs with the Release in `zapped`: pages mapped from
            // here on come after the zap.
            match word.compare_exchange(
                now,
                now + pages as u32,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return CountResult::Counted,
                Err(changed) => {
                    if now == 0 {
                        self.spans.uncharge_table(front, budget);
                    }
                    now = changed;
                }
            }
        }
    }

    /// Counts all pages of the range at `addr` in, where none is resident, and pays for its table: they come as one piece. `None` if
    /// one is.
    pub fn enter_whole(&self, addr: usize, budget: &Budget, reserve: u64) -> Option<CountResult> {
        let (front, word) = self.slot(addr);
        // Relaxed: the exchange below decides.
        match word.load(Ordering::Relaxed) {
            0 => {}
            ZAPPING => return Some(CountResult::Zapping),
            _ => return None,
        }
        match self.spans.charge_table(front, budget, reserve) {
            CountResult::Counted => {}
            refused => return Some(refused),
        }
        let all = WHOLE | (TABLE_SPAN / PAGE_SIZE) as u32;
        // Acquire pairs with the Release in `zapped`, as in `enter`.
        match word.compare_exchange(0, all, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(CountResult::Counted),
            Err(_) => {
                self.spans.uncharge_table(front, budget);
                None
            }
        }
    }

    /// True if the residents of the range at `addr` are one piece of memory. Stable while one of them is locked, but for another
    /// that splits it.
    pub fn is_whole(&self, addr: usize) -> bool {
        // Relaxed: the folio lock orders it after the move.
        let now = self.slot(addr).1.load(Ordering::Relaxed);
        now & (ZAPPING | WHOLE) == WHOLE
    }

    /// The piece has been split: each page is memory of its own. One of them is locked by the caller.
    pub fn split(&self, addr: usize) {
        // Release pairs with the exchange in `leave` of the last page, as that of every page that leaves.
        self.slot(addr).1.fetch_and(!WHOLE, Ordering::Release);
    }

    /// Counts `pages` residents out. Returns the whole range if they were the
    /// last: the caller zaps it and then calls [`zapped`](Self::zapped).
    pub fn leave(&self, addr: usize, pages: usize) -> Option<Range<usize>> {
        let (_, word) = self.slot(addr);
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let residents = now & !WHOLE;
            assert!(
                now & ZAPPING == 0 && residents >= pages as u32,
                "range count"
            );
            let after = match residents - pages as u32 {
                0 => ZAPPING,
                some => some | now & WHOLE,
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
        let (front, word) = self.slot(range.start);
        // Release pairs with the Acquire in `enter`.
        let before = word.swap(0, Ordering::Release);
        assert_eq!(before, ZAPPING, "a range is zapped once");
        word.wake(u32::MAX);
        self.spans.uncharge_table(front, budget);
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

    /// Waits while the range is being zapped, or its page of the table goes, at most
    /// `timeout_ns`.
    pub fn wait_zapped(&self, addr: usize, timeout_ns: u64) {
        let (front, word) = self.slot(addr);
        // Relaxed: a woken thread looks again.
        let zapping = match front.load(Ordering::Relaxed) {
            ZAPPING => front,
            _ => word,
        };
        zapping.wait(ZAPPING, Some(timeout_ns));
    }

    /// Address of byte `offset` from page `pgoff` on.
    #[inline]
    pub fn address(&self, pgoff: u64, offset: usize) -> usize {
        self.reservation.addr + pgoff as usize * PAGE_SIZE + offset
    }

    /// Residents of the range that a page table covers around `addr`; 0 while
    /// it is being zapped whole. Exact while nobody maps or unmaps there.
    pub fn residents(&self, addr: usize) -> usize {
        // Relaxed: a caller that needs it exact excludes the others.
        match self.slot(addr).1.load(Ordering::Relaxed) {
            ZAPPING => 0,
            count => (count & !WHOLE) as usize,
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
        start..(start + TABLE_SPAN).min(self.spans.range.end)
    }

    /// Pages that are charged for the tables of this window, which is all of its
    /// reservation: page tables, upper ones, and pages of its own table. Exact while
    /// nobody maps or unmaps there.
    pub(crate) fn charged_tables(&self) -> u64 {
        let spans = self.spans(self.reservation.range());
        let used = |span: &Range<usize>| self.slot(span.start).1.load(Ordering::Relaxed) != 0;
        let page_tables = spans.filter(used).count() as u64;
        let fronts = (self.spans.range.clone()).step_by((WORDS - 1) * TABLE_SPAN);
        let in_use = |&addr: &usize| self.slot(addr).0.load(Ordering::Relaxed) != 0;
        let words = match self.spans.comes_and_goes() {
            true => fronts.filter(in_use).count() as u64,
            false => 0,
        };
        page_tables + words + self.table_pages()
    }
}
