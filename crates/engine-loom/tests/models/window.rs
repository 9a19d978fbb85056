//! Models of the range word of a window: threads that map into a page table's
//! range against threads that take the last page out and zap it whole.
//!
//! The page table is a cell that loom watches: a zap that does not come after
//! the mapping, or a mapping that does not come after the zap, ends the model. The
//! range is shared by two windows, as in an arena. A page of words that goes with the
//! last of its ranges is another such cell.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::{apart, explore, schedules};
use loom::cell::UnsafeCell;
use softfault_engine_loom::PAGE_SIZE;
use softfault_engine_loom::budget::Budget;
use softfault_engine_loom::cache::window::{CountResult, Spans, Window};
use softfault_engine_loom::mmu::{Reservation, TABLE_SPAN};
use sync::pages;

const PAGES: usize = 3;
const FIRST: usize = 4 * TABLE_SPAN;

struct Range {
    /// Parts of one reservation: the first page, and the others.
    windows: [Window; 2],
    budget: Arc<Budget>,
    /// The page table: used by maps, gone with the zap of the whole range.
    /// Zaps of single pages may come late, beside one of the whole: a page's
    /// own folio lock keeps others from mapping it before they are through.
    table: UnsafeCell<()>,
    /// Pages that are counted in, by the threads that did. Not explored.
    inside: AtomicUsize,
}

// SAFETY: the table is protected by the modelled protocol; loom checks it.
unsafe impl Sync for Range {}
// SAFETY: as above.
unsafe impl Send for Range {}

impl Range {
    /// Two windows of one range, with the first `mapped` pages in it.
    fn new(mapped: usize, budget: u64) -> Arc<Self> {
        let reservation = Reservation {
            addr: FIRST,
            bytes: PAGES * PAGE_SIZE,
            token: 0,
        };
        let spans = Spans::new(&reservation).unwrap();
        let part = |pages: core::ops::Range<usize>| {
            let part = Reservation {
                addr: Self::addr(pages.start),
                bytes: pages.len() * PAGE_SIZE,
                token: 0,
            };
            Window::part(part, spans.clone())
        };
        let range = Self {
            windows: [part(0..1), part(1..PAGES)],
            budget: Budget::new(budget),
            table: UnsafeCell::new(()),
            inside: AtomicUsize::new(0),
        };
        (0..mapped).for_each(|page| range.map(page));
        Arc::new(range)
    }

    fn addr(page: usize) -> usize {
        FIRST + page * PAGE_SIZE
    }

    fn window(&self, page: usize) -> &Window {
        &self.windows[usize::from(page > 0)]
    }

    fn try_map(&self, page: usize) -> CountResult {
        let entered = self
            .window(page)
            .enter(Self::addr(page), 1, &self.budget, 0);
        if entered == CountResult::Counted {
            self.inside.fetch_add(1, Relaxed);
            self.table.with(|_| ());
        }
        entered
    }

    /// As a fault does: waits while the range is being zapped.
    fn map(&self, page: usize) {
        loop {
            match self.try_map(page) {
                CountResult::Counted => return,
                CountResult::Zapping => self.window(page).wait_zapped(Self::addr(page), 1),
                CountResult::NoMemory => panic!("there is memory"),
            }
        }
    }

    /// As reclaim does: the page alone, or its whole range if it is the last.
    fn unmap(&self, page: usize) {
        self.inside.fetch_sub(1, Relaxed);
        if let Some(range) = self.window(page).leave(Self::addr(page), 1) {
            let inside = || assert_eq!(self.inside.load(Relaxed), 0, "somebody is inside");
            inside();
            self.table.with_mut(|_| ());
            inside();
            self.window(page).zapped(&range, &self.budget);
        }
    }

    /// The charge agrees with the pages.
    fn check(&self) {
        let residents = self.windows[1].residents(FIRST);
        assert_eq!(residents, self.inside.load(Relaxed));
        assert_eq!(self.budget.charged(), u64::from(residents > 0));
    }
}

#[test]
fn a_fault_against_the_zap_of_its_table() {
    explore(None, || {
        let range = Range::new(1, 64);
        let fault = {
            let range = Arc::clone(&range);
            spawn(move || {
                range.map(1);
                range.unmap(1);
            })
        };
        range.unmap(0);
        fault.join().unwrap();
        range.check();
    });
}

#[test]
fn a_fault_against_two_that_take_pages_out() {
    explore(Some(3), || {
        let range = Range::new(2, 64);
        let others = [0, 1].map(|page| {
            let range = Arc::clone(&range);
            spawn(move || range.unmap(page))
        });
        range.map(2);
        for other in others {
            other.join().unwrap();
        }
        range.check();
    });
}

#[test]
fn two_faults_wait_for_one_zap() {
    explore(Some(1), || {
        let range = Range::new(1, 64);
        let faults = [1, 2].map(|page| {
            let range = Arc::clone(&range);
            spawn(move || range.map(page))
        });
        range.unmap(0);
        for fault in faults {
            fault.join().unwrap();
        }
        range.check();
    });
}

#[test]
fn a_page_that_is_mapped_again_and_again() {
    explore(Some(2), || {
        let range = Range::new(0, 64);
        let other = {
            let range = Arc::clone(&range);
            spawn(move || {
                for _ in 0..2 {
                    range.map(1);
                    range.unmap(1);
                }
            })
        };
        range.map(0);
        range.unmap(0);
        other.join().unwrap();
        range.check();
    });
}

#[test]
fn the_first_two_pay_for_one_table() {
    apart(|| {
        // The budget is the charge of one of them. The other may be refused while both
        // have paid; then it is given back.
        let refused = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let refused = Arc::clone(&refused);
            move || {
                let range = Range::new(0, 1);
                let once = |page: usize| {
                    let (range, refused) = (Arc::clone(&range), Arc::clone(&refused));
                    move || match range.try_map(page) {
                        CountResult::Counted => {}
                        CountResult::NoMemory => {
                            refused.fetch_add(1, Relaxed);
                        }
                        CountResult::Zapping => panic!("nobody zaps"),
                    }
                };
                let other = spawn(once(1));
                once(0)();
                other.join().unwrap();
                if range.windows[0].residents(FIRST) == 0 {
                    range.map(0);
                }
                assert!(range.budget.peak() <= range.budget.limit());
                range.check();
            }
        });
        assert!(refused.load(Relaxed) > 0);
    });
}

/// A window whose words take two pages, and the first of those pages: used by threads in
/// one of its ranges, gone when nobody is.
struct Words {
    window: Window,
    budget: Arc<Budget>,
    page: UnsafeCell<()>,
}

// SAFETY: the page is protected by the modelled protocol; loom checks it.
unsafe impl Sync for Words {}
// SAFETY: as above.
unsafe impl Send for Words {}

impl Words {
    /// Counts a page in and out of a range.
    fn come_and_go(&self, range: usize) {
        let addr = FIRST + range * TABLE_SPAN;
        loop {
            match self.window.enter(addr, 1, &self.budget, 0) {
                CountResult::Counted => break,
                CountResult::Zapping => self.window.wait_zapped(addr, 1),
                CountResult::NoMemory => panic!("there is memory"),
            }
        }
        self.page.with(|_| ());
        let zap = self.window.leave(addr, 1).expect("nobody else is there");
        self.window.zapped(&zap, &self.budget);
    }
}

#[test]
fn a_page_of_words_that_comes_and_goes() {
    explore(Some(2), || {
        let reservation = Reservation {
            addr: FIRST,
            bytes: 1100 * TABLE_SPAN,
            token: 0,
        };
        let words = Arc::new(Words {
            window: Window::new(reservation).unwrap(),
            budget: Budget::new(64),
            page: UnsafeCell::new(()),
        });
        let gone = Arc::clone(&words);
        pages::on_discard(move || gone.page.with_mut(|_| ()));
        let other = {
            let words = Arc::clone(&words);
            spawn(move || words.come_and_go(1))
        };
        words.come_and_go(0);
        other.join().unwrap();
        pages::on_discard(|| ());
        assert_eq!(words.budget.charged(), 0);
    });
}

/// A whole range comes in one piece, beside a fault that maps a page of it alone. Either is first, and the other finds so.
#[test]
fn a_piece_that_comes_as_a_whole_against_a_fault() {
    apart(|| {
        const ALL: usize = TABLE_SPAN / PAGE_SIZE;
        let whole = Arc::new(AtomicUsize::new(0));
        let all = schedules(None, {
            let whole = Arc::clone(&whole);
            move || {
                let reservation = Reservation {
                    addr: FIRST,
                    bytes: TABLE_SPAN,
                    token: 0,
                };
                let window = Arc::new(Window::new(reservation).unwrap());
                let budget = Budget::new(8);
                let fault = {
                    let (window, budget) = (Arc::clone(&window), Arc::clone(&budget));
                    spawn(move || window.enter(FIRST, 1, &budget, 0) == CountResult::Counted)
                };
                let is_whole = match window.enter_whole(FIRST, &budget, 0) {
                    Some(CountResult::Counted) => true,
                    None => false,
                    refused => panic!("{refused:?}"),
                };
                assert!(fault.join().unwrap(), "there is memory");
                whole.fetch_add(usize::from(is_whole), Relaxed);
                assert_eq!(window.is_whole(FIRST), is_whole);
                assert_eq!(window.residents(FIRST), 1 + usize::from(is_whole) * ALL);
                assert_eq!(budget.charged(), 1, "one table");
            }
        });
        let whole = whole.load(Relaxed);
        assert!(0 < whole && whole < all, "{whole}");
    });
}

/// Two take parts of a piece out: both find it split, and one of them is the last.
#[test]
fn two_take_parts_of_a_piece_out() {
    const ALL: usize = TABLE_SPAN / PAGE_SIZE;
    explore(None, || {
        let reservation = Reservation {
            addr: FIRST,
            bytes: TABLE_SPAN,
            token: 0,
        };
        let window = Arc::new(Window::new(reservation).unwrap());
        let budget = Budget::new(8);
        let entered = window.enter_whole(FIRST, &budget, 0);
        assert_eq!(entered, Some(CountResult::Counted));
        let part = |first: usize, pages: usize| {
            let window = Arc::clone(&window);
            move || {
                let addr = FIRST + first * PAGE_SIZE;
                if window.is_whole(addr) {
                    window.split(addr);
                }
                window.leave(addr, pages).is_some()
            }
        };
        let other = spawn(part(0, 16));
        let last = part(16, ALL - 16)();
        let other_last = other.join().unwrap();
        assert!(last != other_last, "one of them zaps the range");
        assert!(!window.is_whole(FIRST));
        assert_eq!(window.residents(FIRST), 0);
        window.zapped(&(FIRST..FIRST + TABLE_SPAN), &budget);
        assert_eq!(budget.charged(), 0);
    });
}
