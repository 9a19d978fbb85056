//! Models of the word of an anonymous page: absent, locked by one fault,
//! resident, given back.
//!
//! A page's bytes are a cell that loom watches: two that fill it, or one that
//! reads it and did not wait for its filler, end the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::{Still, apart, explore, schedules};
use loom::cell::UnsafeCell;
use softfault_engine_loom::anon::PageState;
use softfault_engine_loom::anon::pages::{Found, Pages};
use softfault_engine_loom::budget::{Budget, FLOOR};
use softfault_engine_loom::lock::RwSem;

const PAGES: usize = 2;

struct Memory {
    pages: Pages,
    budget: Arc<Budget>,
    /// The stand-in of the VMA lock: for read by faults, for write by removals.
    vma: RwSem,
    bytes: [UnsafeCell<u32>; PAGES],
}

// SAFETY: bytes are protected by the modelled protocol; loom checks it.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

/// How a fault ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// It filled the page.
    Filled,
    /// It was there.
    Found,
    NoMemory,
}

impl Memory {
    fn new(budget: u64) -> Arc<Self> {
        // Words of pages leave the floor to evictable pages.
        let budget = Budget::new(FLOOR + budget);
        // Stocks have models of their own (`budget`): where somebody waits there are none.
        core::mem::forget(budget.subscribe());
        Arc::new(Self {
            pages: Pages::new(PAGES).unwrap(),
            budget,
            vma: RwSem::new(Arc::new(Still)),
            bytes: core::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    /// A fault: fills the page, or waits for the thread that does, with no lock held.
    /// `refuse` fills it not, the first time.
    fn fault(&self, page: usize, mut refuse: bool) -> Ended {
        loop {
            let vma = self.vma.read();
            match self.pages.find(page, &self.budget) {
                Found::State(state) if state.is_resident() => {
                    // SAFETY: nobody fills a page that is there.
                    let bytes = self.bytes[page].with(|bytes| unsafe { *bytes });
                    assert_eq!(bytes, 1);
                    return Ended::Found;
                }
                Found::State(state) => {
                    let Some(mut lock) = self.pages.try_lock(page, state) else {
                        continue;
                    };
                    if core::mem::take(&mut refuse) {
                        continue;
                    }
                    // SAFETY: the page is locked; loom checks it.
                    self.bytes[page].with_mut(|bytes| unsafe { *bytes += 1 });
                    lock.set(state.to_dirty());
                    return Ended::Filled;
                }
                Found::Locked => {
                    drop(vma);
                    self.pages.wait_unlocked(page, 1);
                }
                Found::NoMemory => return Ended::NoMemory,
            }
        }
    }

    /// Takes a page out, with faults kept away, as an unmap does.
    fn remove(&self, page: usize) -> bool {
        let _vma = self.vma.write();
        if self.pages.next_used(page) != page {
            // Its words are not in use: no fault has come to it.
            return false;
        }
        let mut lock = self.pages.lock(page);
        let was = lock.state().is_resident();
        lock.set(PageState::ABSENT);
        if was {
            // SAFETY: no fault, and nobody shows the page; loom checks it.
            self.bytes[page].with_mut(|bytes| unsafe { *bytes = 0 });
        }
        was
    }

    /// Gives back the charge of the words: `charged` before.
    fn check(&self, charged: u64) {
        assert_eq!(self.budget.charged(), charged);
        self.pages.uncharge(&self.budget);
        assert_eq!(self.budget.charged(), 0);
    }
}

#[test]
fn one_fills_and_the_other_waits() {
    apart(|| {
        let waited = Arc::new(AtomicUsize::new(0));
        explore(Some(3), {
            let waited = Arc::clone(&waited);
            move || {
                let memory = Memory::new(8);
                let other = {
                    let memory = Arc::clone(&memory);
                    spawn(move || memory.fault(0, false))
                };
                let mine = memory.fault(0, false);
                let other = other.join().unwrap();
                assert!(mine != other, "{mine:?} twice");
                waited.fetch_add((mine == Ended::Found).into(), Relaxed);
                memory.check(1);
            }
        });
        assert!(waited.load(Relaxed) > 0);
    });
}

#[test]
fn two_wait_for_one_that_fills() {
    explore(Some(1), || {
        let memory = Memory::new(8);
        let others = [(); 2].map(|()| {
            let memory = Arc::clone(&memory);
            spawn(move || memory.fault(0, false))
        });
        let mut ends = vec![memory.fault(0, false)];
        ends.extend(others.map(|other| other.join().unwrap()));
        let filled = ends.iter().filter(|&&end| end == Ended::Filled);
        assert_eq!(filled.count(), 1);
        memory.check(1);
    });
}

#[test]
fn a_fault_that_gives_up_leaves_the_page_to_its_waiter() {
    explore(Some(2), || {
        let memory = Memory::new(8);
        let other = {
            let memory = Arc::clone(&memory);
            spawn(move || memory.fault(0, false))
        };
        let mine = memory.fault(0, true);
        assert!(mine != other.join().unwrap());
        memory.check(1);
    });
}

#[test]
fn a_fault_against_the_removal_of_its_page() {
    apart(|| {
        let removed = Arc::new(AtomicUsize::new(0));
        let all = schedules(Some(4), {
            let removed = Arc::clone(&removed);
            move || {
                let memory = Memory::new(8);
                let other = {
                    let memory = Arc::clone(&memory);
                    spawn(move || memory.fault(0, false))
                };
                let was = memory.remove(0);
                removed.fetch_add(was.into(), Relaxed);
                assert_eq!(other.join().unwrap(), Ended::Filled);
                assert_eq!(memory.pages.state(0).is_resident(), !was);
                assert_eq!(memory.remove(0), !was);
                memory.check(1);
            }
        });
        let removed = removed.load(Relaxed);
        assert!(0 < removed && removed < all);
    });
}

#[test]
fn a_page_is_filled_again_after_a_removal() {
    explore(Some(2), || {
        let memory = Memory::new(8);
        assert_eq!(memory.fault(0, false), Ended::Filled);
        let others = [(); 2].map(|()| {
            let memory = Arc::clone(&memory);
            spawn(move || memory.fault(0, false))
        });
        assert!(memory.remove(0));
        let ends = others.map(|other| other.join().unwrap());
        assert!(ends != [Ended::Filled; 2]);
        memory.check(1);
    });
}

#[test]
fn the_words_are_paid_for_once() {
    apart(|| {
        // There is no room to pay twice: one may be refused meanwhile.
        let refused = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let refused = Arc::clone(&refused);
            move || {
                let memory = Memory::new(1);
                let other = {
                    let memory = Arc::clone(&memory);
                    spawn(move || memory.fault(1, false))
                };
                let ends = [memory.fault(0, false), other.join().unwrap()];
                assert!(ends.contains(&Ended::Filled));
                refused.fetch_add(ends.contains(&Ended::NoMemory).into(), Relaxed);
                memory.check(1);
            }
        });
        assert!(refused.load(Relaxed) > 0);
    });
}

#[test]
fn the_words_are_paid_for_once_where_there_is_room_for_more() {
    explore(Some(3), || {
        let memory = Memory::new(2);
        let other = {
            let memory = Arc::clone(&memory);
            spawn(move || memory.fault(1, false))
        };
        let ends = [memory.fault(0, false), other.join().unwrap()];
        assert_eq!(ends, [Ended::Filled; 2]);
        memory.check(1);
    });
}

/// A fork enters a page in a window that no space has mapped yet, and that reclaim goes over already.
#[test]
fn a_page_that_is_entered_has_its_slot() {
    const SLOT: u32 = 7;
    apart(|| {
        let claimed = Arc::new(AtomicUsize::new(0));
        let all = schedules(None, {
            let claimed = Arc::clone(&claimed);
            move || {
                let memory = Memory::new(8);
                assert!(memory.pages.pay_for(0, &memory.budget));
                let reclaim = {
                    let memory = Arc::clone(&memory);
                    spawn(move || {
                        let state = memory.pages.state(0);
                        let is_seen = state.is_resident();
                        if is_seen {
                            let lock = memory.pages.try_lock(0, state).expect("it is alone");
                            assert_eq!(lock.slot(), Some(SLOT));
                        }
                        is_seen
                    })
                };
                let clean = PageState::ABSENT.to_clean();
                memory.pages.enter(0, clean, Some(SLOT));
                claimed.fetch_add(reclaim.join().unwrap().into(), Relaxed);
                memory.check(1);
            }
        });
        let claimed = claimed.load(Relaxed);
        assert!(0 < claimed && claimed < all);
    });
}
