//! The state of each page of an anonymous window: two words a page.
//!
//! | state | the page is |
//! |---|---|
//! | absent | zeros, or the bytes of the file that is mapped privately |
//! | resident | in the window, written since it came, and paid for |
//! | resident, clean | in the window, protected, and the same as in its slot, in the file, or zeros |
//! | resident, clean, zero | zeros that cost no memory |
//! | swapped | in its slot |
//!
//! `LOCKED` beside it: being filled, evicted, or changed otherwise, by one
//! thread, which alone may change the words until it unlocks; all others may
//! but add `WAITED`. A fault tries the lock, and waits for it with no VMA lock, but with `retry=held` and
//! `retry=mmap-lock`. Unmap, fork and a move wait with VMAs locked for writing: for
//! reclaim and madvise, which wait for no such lock with a page locked.
//!
//! Words lie in pages of their own, each paid for when the first of its words is
//! needed. A bit for each of these says whether it is: so words that nobody needed are passed over
//! without a touch, which would take memory.

use super::state::PageState;
use crate::PAGE_SIZE;
use crate::budget::{Budget, FLOOR, SLICE_NS};
use core::ptr::NonNull;
use sync::atomic::{AtomicU64, Ordering};
use sync::wait::WaitWord;

const LOCKED: u32 = 1 << 30;
const WAITED: u32 = 1 << 31;

/// A page's words.
struct PageWords {
    /// A [`PageState`], [`LOCKED`] and [`WAITED`].
    word: WaitWord,
    /// 0, or the number of the page's slot and 1. Protected by the page lock. A
    /// word that can be made of zeros in all worlds.
    slot: WaitWord,
}

/// Entries a page of the table.
const ENTRIES: usize = PAGE_SIZE / size_of::<PageWords>();
/// Bits a word of those that say which pages of the table are paid for.
const BITS: usize = u64::BITS as usize;

/// The words of all pages of a window.
pub struct Pages {
    /// Zeroed, and resident only where touched.
    entries: NonNull<PageWords>,
    bytes: usize,
    count: usize,
    /// A bit for each page of the table: it is paid for. 64 KiB for a TiB of memory, which nobody pays for.
    paid: Box<[AtomicU64]>,
    /// Pages of this table that are charged.
    charged: AtomicU64,
}

// SAFETY: the words are atomics; the table is given back only on drop.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// The lock state that a fault finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nobody is at work on it.
    State(PageState),
    /// Somebody is: wait, then look again.
    Locked,
    /// The budget has no page for the words.
    NoMemory,
}

/// A page, locked. Dropping it unlocks the page in the state that was set, or
/// else as it was.
pub struct PageLock<'a> {
    pages: &'a Pages,
    page: usize,
    state: PageState,
}

impl Pages {
    /// Words for `count` pages. `None` where the system has no memory.
    pub fn new(count: usize) -> Option<Self> {
        let table_pages = count.div_ceil(ENTRIES);
        let bytes = table_pages * PAGE_SIZE;
        let paid = sync::zeros::table(table_pages.div_ceil(BITS))?;
        Some(Self {
            entries: sync::pages::map(bytes)?.cast(),
            bytes,
            count,
            paid,
            charged: AtomicU64::new(0),
        })
    }

    /// How many pages there are words for.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the table, if all of it were touched.
    pub fn table_bytes(&self) -> usize {
        self.bytes
    }

    fn entry(&self, page: usize) -> &PageWords {
        assert!(page < self.count, "page {page} is past the end");
        // SAFETY: the table has an entry for each page, as just asserted; zeroed
        // memory is a valid one.
        unsafe { self.entries.add(page).as_ref() }
    }

    /// The word and the bit that say whether the words around `page`'s are paid for.
    fn paid(&self, page: usize) -> (&AtomicU64, u64) {
        let table_page = page / ENTRIES;
        (&self.paid[table_page / BITS], 1 << (table_page % BITS))
    }

    fn is_paid(&self, page: usize) -> bool {
        let (word, bit) = self.paid(page);
        // Relaxed: a hint, or under the VMA lock, which orders it.
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Pays for the words around `page`'s, once. `false` if the budget has no
    /// page for them.
    pub fn pay_for(&self, page: usize, budget: &Budget) -> bool {
        // Relaxed: says only which page pays.
        if !self.is_paid(page) {
            if !budget.try_charge(1, FLOOR) {
                return false;
            }
            let (word, bit) = self.paid(page);
            if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                self.charged.fetch_add(1, Ordering::Relaxed);
            } else {
                budget.uncharge(1);
            }
        }
        true
    }

    /// Looks at a page, whose words are paid for from now on.
    #[inline]
    pub fn find(&self, page: usize, budget: &Budget) -> Found {
        if !self.pay_for(page, budget) {
            return Found::NoMemory;
        }
        // Acquire pairs with the Release in `unlock`: a thread that finds the page
        // done sees all that was done to it.
        let word = self.entry(page).word.load(Ordering::Acquire);
        match word & LOCKED {
            0 => Found::State(PageState::from_bits(word & !WAITED)),
            _ => Found::Locked,
        }
    }

    /// The state of a page, which may be locked; absent where the words were
    /// never needed.
    pub fn state(&self, page: usize) -> PageState {
        if !self.is_paid(page) {
            return PageState::ABSENT;
        }
        // Relaxed, as in `is_paid`.
        PageState::from_bits(self.entry(page).word.load(Ordering::Relaxed) & !(LOCKED | WAITED))
    }

    /// The state of a page that is not locked.
    pub fn unlocked_state(&self, page: usize) -> Option<PageState> {
        if !self.is_paid(page) {
            return Some(PageState::ABSENT);
        }
        // Acquire pairs with the Release in `unlock`: the slot is the state's.
        let word = self.entry(page).word.load(Ordering::Acquire);
        (word & LOCKED == 0).then(|| PageState::from_bits(word & !WAITED))
    }

    /// True if a page is absent, and nobody is at work on it.
    pub fn is_unused(&self, page: usize) -> bool {
        self.unlocked_state(page) == Some(PageState::ABSENT)
    }

    /// The first page from `page` on whose words are in use, or may be.
    pub fn next_used(&self, page: usize) -> usize {
        if page >= self.count {
            return self.count;
        }
        let first = page / ENTRIES;
        let mut from = u64::MAX << (first % BITS);
        for (place, word) in self.paid.iter().enumerate().skip(first / BITS) {
            // Relaxed, as in `is_paid`.
            let paid = word.load(Ordering::Relaxed) & from;
            if paid != 0 {
                let table_page = place * BITS + paid.trailing_zeros() as usize;
                return page.max(table_page * ENTRIES);
            }
            from = u64::MAX;
        }
        self.count
    }

    /// Locks a page, if it still is in this state.
    #[inline]
    pub fn try_lock(&self, page: usize, state: PageState) -> Option<PageLock<'_>> {
        // Not `then_some`: a lock that was not taken must not be dropped.
        self.claim(page, state).then(|| PageLock {
            pages: self,
            page,
            state,
        })
    }

    /// The same, without the guard: [`unlock`](Self::unlock) ends it.
    #[inline]
    pub fn claim(&self, page: usize, state: PageState) -> bool {
        let word = &self.entry(page).word;
        // Otherwise the new state would be lost.
        debug_assert!(self.is_paid(page), "words not paid for");
        let bits = state.bits();
        // Acquire pairs with the Release in `unlock`. As a rule nobody has waited.
        let locked = bits | LOCKED;
        let free = word.compare_exchange(bits, locked, Ordering::Acquire, Ordering::Relaxed);
        if free.is_ok() {
            return true;
        }
        // The bit of a waiter that gave up does not stay in the way.
        let locked = |now: u32| (now & !WAITED == bits).then_some(bits | LOCKED | now & WAITED);
        word.fetch_update(Ordering::Acquire, Ordering::Relaxed, locked)
            .is_ok()
    }

    /// Changes the state of a page that nobody has locked; `false` if it is
    /// another by now. Only its heat, and whether it stays.
    pub fn change(&self, page: usize, from: PageState, to: PageState) -> bool {
        let word = &self.entry(page).word;
        let change = |now: u32| (now & !WAITED == from.bits()).then_some(to.bits() | now & WAITED);
        // Relaxed: neither orders anything.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        word.fetch_update(set, fetch, change).is_ok()
    }

    /// Locks a page in any state, after the present holders of its lock.
    pub fn lock(&self, page: usize) -> PageLock<'_> {
        let state = self.lock_bare(page);
        PageLock {
            pages: self,
            page,
            state,
        }
    }

    /// The same, without the guard; its state.
    pub(crate) fn lock_bare(&self, page: usize) -> PageState {
        loop {
            let state = self.state(page);
            if self.claim(page, state) {
                return state;
            }
            self.wait_unlocked(page, SLICE_NS);
        }
    }

    /// Unlocks a page that the caller has locked.
    #[inline]
    pub fn unlock(&self, page: usize, state: PageState) {
        let word = &self.entry(page).word;
        // Release pairs with the Acquire in `find` and `claim`.
        let before = word.swap(state.bits(), Ordering::Release);
        assert!(before & LOCKED != 0, "page {page} was not locked");
        if before & WAITED != 0 {
            word.wake(u32::MAX);
        }
    }

    /// True if somebody waits for a page that the caller has locked.
    pub fn is_waited_for(&self, page: usize) -> bool {
        // Relaxed: a hint.
        self.entry(page).word.load(Ordering::Relaxed) & WAITED != 0
    }

    /// The slot that has the page's bytes. The caller has locked the page, or
    /// keeps all out that could change it.
    pub fn slot(&self, page: usize) -> Option<u32> {
        // Relaxed, here and below: handed over by the page lock.
        let slot = self.entry(page).slot.load(Ordering::Relaxed);
        slot.checked_sub(1)
    }

    /// Sets it.
    pub fn set_slot(&self, page: usize, slot: Option<u32>) {
        let slot = slot.map_or(0, |slot| slot + 1);
        self.entry(page).slot.swap(slot, Ordering::Relaxed);
    }

    /// Enters a page, whose words are paid for, in a window that no space has
    /// mapped yet.
    pub fn enter(&self, page: usize, state: PageState, slot: Option<u32>) {
        self.set_slot(page, slot);
        // Release pairs with the Acquire in `claim`: reclaim knows the window already, and the slot is the state's. For faults attaching
        // the VMA publishes both.
        let word = &self.entry(page).word;
        let before = word.swap(state.bits(), Ordering::Release);
        assert_eq!(before, 0, "a page of an empty window");
    }

    /// Waits while the page is locked, at most `timeout_ns`.
    pub fn wait_unlocked(&self, page: usize, timeout_ns: u64) {
        let word = &self.entry(page).word;
        // Relaxed: a woken thread looks again.
        let now = word.load(Ordering::Relaxed);
        if now & LOCKED == 0 {
            return;
        }
        let announced = now | WAITED;
        let swapped = word.compare_exchange(now, announced, Ordering::Relaxed, Ordering::Relaxed);
        if swapped.is_ok() {
            word.wait(announced, Some(timeout_ns));
        }
    }

    /// Pages of this table that are charged.
    pub fn charged_pages(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Counts none as charged: the table is a copy of another process's.
    pub fn clear_charged(&self) {
        self.charged.swap(0, Ordering::Relaxed);
    }

    /// Pays back the pages of this table; nobody uses it any more.
    pub fn uncharge(&self, budget: &Budget) {
        budget.uncharge(self.charged.swap(0, Ordering::Relaxed));
    }
}

impl PageLock<'_> {
    /// The state that the page gets at the unlock; at first, its state before.
    pub fn state(&self) -> PageState {
        self.state
    }

    /// Lets it be this.
    #[inline]
    pub fn set(&mut self, state: PageState) {
        self.state = state;
    }

    /// Its slot.
    pub fn slot(&self) -> Option<u32> {
        self.pages.slot(self.page)
    }

    /// Sets its slot.
    pub fn set_slot(&self, slot: Option<u32>) {
        self.pages.set_slot(self.page, slot);
    }
}

impl Drop for PageLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pages.unlock(self.page, self.state);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody else has the table any more.
        unsafe { sync::pages::unmap(self.entries.cast(), self.bytes) };
    }
}
