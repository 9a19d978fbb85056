//! What each page of an anonymous window is: a word a page.
//!
//! | word | the page is |
//! |---|---|
//! | 0 | absent: zeros, if it is touched |
//! | [`LOCKED`], and [`WAITED`] if somebody waits | being filled by one fault |
//! | [`RESIDENT`] | in the window, and paid for |
//!
//! The lock is taken by trying, under the VMA lock, and never waited for with
//! any lock held. Words lie in pages of their own, each paid for when the first
//! of its words is needed. There are bits to spare: what is swapped out will
//! have its slot here.

use crate::PAGE_SIZE;
use crate::budget::Budget;
use core::ptr::NonNull;
use sync::atomic::{AtomicU64, Ordering};
use sync::wait::WaitWord;

const RESIDENT: u32 = 1;
const LOCKED: u32 = 1 << 30;
const WAITED: u32 = 1 << 31;

/// Words a page of the table; the first says whether the page is paid for.
const WORDS: usize = PAGE_SIZE / size_of::<WaitWord>();

/// The words of all pages of a window.
pub struct Pages {
    /// [`WORDS`] - 1 of them a page; zeroed, and resident only where touched.
    words: NonNull<WaitWord>,
    bytes: usize,
    count: usize,
    /// Pages of this table that are paid for.
    paid: AtomicU64,
}

// SAFETY: the words are atomics; the table is given back only on drop.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// What a fault finds.
pub enum Found<'a> {
    /// Absent, and locked by the caller now.
    Absent(PageLock<'a>),
    /// In the window.
    Resident,
    /// Another fault is filling it: wait, then look again.
    Locked,
    /// The budget has no page for the words.
    NoMemory,
}

/// An absent page, locked. Dropping it leaves the page absent.
pub struct PageLock<'a> {
    word: &'a WaitWord,
    after: u32,
}

impl Pages {
    /// Words for `count` pages. `None` where the system has no memory.
    pub fn new(count: usize) -> Option<Self> {
        let bytes = count.div_ceil(WORDS - 1) * PAGE_SIZE;
        let words = sync::pages::map(bytes)?.cast();
        Some(Self {
            words,
            bytes,
            count,
            paid: AtomicU64::new(0),
        })
    }

    fn slot(&self, page: usize) -> (&WaitWord, &WaitWord) {
        assert!(page < self.count, "page {page} is past the end");
        let first = page / (WORDS - 1) * WORDS;
        let word = first + 1 + page % (WORDS - 1);
        // SAFETY: the table has a word for each page, as just asserted; zeroed
        // memory is a valid word.
        unsafe {
            (
                self.words.add(first).as_ref(),
                self.words.add(word).as_ref(),
            )
        }
    }

    /// Pays for the words around `page`'s, once.
    fn pay(&self, paid: &WaitWord, budget: &Budget) -> bool {
        // Relaxed: says only who pays.
        if paid.load(Ordering::Relaxed) == 0 {
            if !budget.try_charge(1, 0) {
                return false;
            }
            if paid.swap(1, Ordering::Relaxed) == 0 {
                self.paid.fetch_add(1, Ordering::Relaxed);
            } else {
                budget.uncharge(1);
            }
        }
        true
    }

    /// Looks at a page, and locks it if it is absent.
    #[inline]
    pub fn find(&self, page: usize, budget: &Budget) -> Found<'_> {
        let (paid, word) = self.slot(page);
        if !self.pay(paid, budget) {
            return Found::NoMemory;
        }
        // Acquire pairs with the Release in `PageLock::drop`.
        match word.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => Found::Absent(PageLock { word, after: 0 }),
            Err(RESIDENT) => Found::Resident,
            Err(_) => Found::Locked,
        }
    }

    /// True if the page is in the window.
    pub fn is_resident(&self, page: usize) -> bool {
        let (paid, word) = self.slot(page);
        // Relaxed: a hint, or under the VMA lock, which orders it.
        paid.load(Ordering::Relaxed) != 0 && word.load(Ordering::Relaxed) == RESIDENT
    }

    /// Pays for the words around `page`'s if that has not been done.
    pub fn pay_for(&self, page: usize, budget: &Budget) -> bool {
        self.pay(self.slot(page).0, budget)
    }

    /// Makes a page resident, whose word is paid for, in a window that no space
    /// has mapped yet.
    pub fn enter(&self, page: usize) {
        // Relaxed: attaching the VMA publishes it.
        let before = self.slot(page).1.swap(RESIDENT, Ordering::Relaxed);
        assert_eq!(before, 0, "a page of an empty window");
    }

    /// Makes a page absent that no fault can come to: true if it was resident.
    pub fn leave(&self, page: usize) -> bool {
        let (paid, word) = self.slot(page);
        // Relaxed, here and below: the write lock of the VMA that showed the
        // page, or owning the window, orders it against faults.
        if paid.load(Ordering::Relaxed) == 0 {
            return false;
        }
        match word.load(Ordering::Relaxed) {
            0 => false,
            _ => {
                let before = word.swap(0, Ordering::Relaxed);
                assert_eq!(before, RESIDENT, "a page without faults is not locked");
                true
            }
        }
    }

    /// Waits while the page is locked, at most `timeout_ns`.
    pub fn wait_unlocked(&self, page: usize, timeout_ns: u64) {
        let (_, word) = self.slot(page);
        // Relaxed: who was woken looks again under the VMA lock.
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

    /// Pays back the pages of this table; nobody uses it any more.
    pub fn uncharge(&self, budget: &Budget) {
        budget.uncharge(self.paid.swap(0, Ordering::Relaxed));
    }
}

impl PageLock<'_> {
    /// The page is in the window: unlocks it as resident.
    #[inline]
    pub fn filled(mut self) {
        self.after = RESIDENT;
    }
}

impl Drop for PageLock<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `find`.
        let before = self.word.swap(self.after, Ordering::Release);
        if before & WAITED != 0 {
            self.word.wake(u32::MAX);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody else has the table any more.
        unsafe { sync::pages::unmap(self.words.cast(), self.bytes) };
    }
}
