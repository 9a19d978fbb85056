//! Models of the budget: no more is charged than the limit, pages given back
//! are there again, and waiters are woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::{apart, explore, schedules};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::thread::JoinHandle;
use softfault_engine_loom::budget::Budget;
use sync::run_on;

/// Pages of a budget under which a processor charges 64 at a time: in a few steps its stock is never empty again.
const STOCKED: u64 = 4096;
/// Pages of a budget under which it charges four at a time, twice at most: a stock is soon empty, and filled again.
const SCARCE: u64 = 72;

/// Waits until `pages` are charged, as a fault does.
fn charge(budget: &Budget, pages: u64) {
    while !budget.try_charge(pages, 0) {
        let subscription = budget.subscribe();
        if budget.free() < pages {
            // Nobody's time is ever up here.
            assert!(subscription.wait(1), "woken for nothing");
        }
    }
}

/// A budget that is charged in full.
fn full(pages: u64) -> Arc<Budget> {
    let budget = Budget::new(pages);
    assert!(budget.try_charge(pages, 0));
    budget
}

fn check(budget: &Budget, charged: u64) {
    assert_eq!(budget.charged(), charged);
    assert!(budget.peak() <= budget.limit(), "{budget:?}");
}

#[test]
fn the_last_page_goes_to_one() {
    explore(None, || {
        let budget = Budget::new(1);
        let other = {
            let budget = Arc::clone(&budget);
            spawn(move || budget.try_charge(1, 0))
        };
        let mine = budget.try_charge(1, 0);
        assert!(mine != other.join().unwrap());
        check(&budget, 1);
        assert_eq!(budget.peak(), 1);
    });
}

#[test]
fn a_reserve_stays_free() {
    explore(None, || {
        let budget = Budget::new(3);
        let other = {
            let budget = Arc::clone(&budget);
            spawn(move || budget.try_charge(1, 1))
        };
        // Without a reserve: it may take the pages that the other left.
        let mine = budget.try_charge(2, 0);
        let other = other.join().unwrap();
        assert!(mine);
        check(&budget, 2 + u64::from(other));
        // One that keeps a page free came first, or not at all.
        assert!(!budget.try_charge(1, 1));
        budget.uncharge(budget.charged() - 2);
        assert!(!budget.try_charge(1, 1), "the last page is to stay free");
    });
}

#[test]
fn relatives_charge_their_parents_memory() {
    explore(Some(4), || {
        let parent = Budget::new(3);
        let children = [(); 2].map(|()| Budget::nested(2, &parent));
        let other = {
            let child = Arc::clone(&children[1]);
            spawn(move || {
                let charged = child.try_charge(2, 0);
                if charged {
                    child.uncharge(1);
                }
                charged
            })
        };
        let mine = children[0].try_charge(2, 0);
        let other = other.join().unwrap();
        assert!(mine || other, "two of three pages go to somebody");
        check(&children[0], if mine { 2 } else { 0 });
        check(&children[1], if other { 1 } else { 0 });
        check(&parent, children[0].charged() + children[1].charged());
    });
}

#[test]
fn pages_that_come_back_wake_waiters() {
    apart(|| {
        let waited = Arc::new(AtomicUsize::new(0));
        let all = schedules(None, {
            let waited = Arc::clone(&waited);
            move || {
                let budget = full(2);
                let waiter = {
                    let (budget, waited) = (Arc::clone(&budget), Arc::clone(&waited));
                    spawn(move || {
                        if !budget.try_charge(1, 0) {
                            waited.fetch_add(1, Relaxed);
                            charge(&budget, 1);
                        }
                    })
                };
                budget.uncharge(1);
                waiter.join().unwrap();
                check(&budget, 2);
            }
        });
        let waited = waited.load(Relaxed);
        assert!(0 < waited && waited < all);
    });
}

#[test]
fn two_wait_and_both_get_a_page() {
    explore(Some(2), || {
        let budget = full(2);
        let waiters = [(); 2].map(|()| {
            let budget = Arc::clone(&budget);
            spawn(move || charge(&budget, 1))
        });
        // At once: both are woken for it.
        budget.uncharge(2);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        check(&budget, 2);
    });
}

#[test]
fn a_page_goes_round() {
    // Each wants the page, and gives it back: its owner wakes the others.
    explore(Some(3), || {
        let budget = Budget::new(1);
        let once = {
            let budget = Arc::clone(&budget);
            move || {
                charge(&budget, 1);
                budget.uncharge(1);
            }
        };
        let other = spawn(once.clone());
        once();
        other.join().unwrap();
        check(&budget, 0);
    });
}

#[test]
fn a_raised_limit_wakes_waiters() {
    explore(Some(3), || {
        let budget = full(1);
        let waiter = {
            let budget = Arc::clone(&budget);
            spawn(move || charge(&budget, 1))
        };
        budget.set_limit(2);
        waiter.join().unwrap();
        check(&budget, 2);
    });
}

#[test]
fn pages_that_a_relative_gives_back_wake_waiters() {
    // The child has room; it is the parent that is full.
    explore(Some(3), || {
        let parent = Budget::new(2);
        let [idle, busy] = [(); 2].map(|()| Budget::nested(2, &parent));
        assert!(idle.try_charge(2, 0));
        let waiter = spawn(move || charge(&busy, 1));
        idle.uncharge(1);
        waiter.join().unwrap();
        check(&parent, 2);
    });
}

#[test]
fn a_charge_that_the_parent_refused_is_given_back_to_waiters() {
    // One charge stops another for a moment and then fails itself.
    explore(Some(3), || {
        let parent = Budget::new(2);
        let child = Budget::nested(2, &parent);
        let other = {
            let child = Arc::clone(&child);
            spawn(move || charge(&child, 1))
        };
        assert!(parent.try_charge(1, 0));
        let two = child.try_charge(2, 0);
        assert!(!two, "the parent has one page");
        other.join().unwrap();
        check(&child, 1);
        check(&parent, 2);
    });
}

#[test]
fn frames_that_come_back_wake_waiters() {
    // A wait need not be for pages: then the release is announced.
    explore(None, || {
        let budget = Budget::new(1);
        let frames = Arc::new(AtomicU32::new(0));
        let waiter = {
            let (budget, frames) = (Arc::clone(&budget), Arc::clone(&frames));
            spawn(move || {
                loop {
                    let subscription = budget.subscribe();
                    if frames.fetch_add(0, Relaxed) > 0 {
                        return;
                    }
                    subscription.wait(1);
                }
            })
        };
        frames.fetch_add(1, Relaxed);
        budget.notify_release();
        waiter.join().unwrap();
    });
}

#[test]
fn pages_in_stock_keep_no_thread_waiting() {
    // One charges pages of a batch of its processor's; the other wants nearly
    // all there is, which is there only without the batch.
    explore(Some(2), || {
        let budget = Budget::new(STOCKED);
        let other = {
            let budget = Arc::clone(&budget);
            spawn(move || {
                run_on(1);
                charge(&budget, 1);
                charge(&budget, 1);
            })
        };
        charge(&budget, STOCKED - 2);
        other.join().unwrap();
        check(&budget, STOCKED);
    });
}

#[test]
fn a_stock_that_two_take_from_is_counted_once() {
    explore(Some(3), || {
        let budget = Budget::new(SCARCE);
        let once = {
            let budget = Arc::clone(&budget);
            move || {
                charge(&budget, 2);
                charge(&budget, 2);
                budget.uncharge(1);
            }
        };
        // The same processor: the batch of one is the other's too.
        let other = spawn(once.clone());
        once();
        other.join().unwrap();
        check(&budget, 6);
        // All that is not charged can be.
        assert!(budget.try_charge(SCARCE - 6, 0));
        assert!(!budget.try_charge(1, 0));
    });
}

#[test]
fn a_lower_limit_finds_pages_in_stock() {
    explore(Some(2), || {
        let budget = Budget::new(STOCKED);
        charge(&budget, 1);
        let other = {
            let budget = Arc::clone(&budget);
            spawn(move || charge(&budget, 1))
        };
        budget.set_limit(2);
        other.join().unwrap();
        assert_eq!(budget.charged(), 2);
        assert_eq!(budget.excess(), 0);
        assert!(!budget.try_charge(1, 0));
    });
}

/// Gives a page back on the other processor.
fn give_back_elsewhere(budget: &Arc<Budget>) -> JoinHandle<()> {
    let budget = Arc::clone(budget);
    spawn(move || {
        run_on(1);
        budget.uncharge(1);
    })
}

#[test]
fn a_page_that_goes_back_to_the_stock_keeps_no_thread_waiting() {
    // The other processor's stock takes the page; this thread wants all there is.
    explore(Some(3), || {
        let budget = Budget::new(STOCKED);
        charge(&budget, 1);
        let other = give_back_elsewhere(&budget);
        charge(&budget, STOCKED);
        other.join().unwrap();
        check(&budget, STOCKED);
    });
}

#[test]
fn a_lower_limit_finds_pages_that_go_back_to_the_stock() {
    explore(Some(3), || {
        let budget = Budget::new(STOCKED);
        charge(&budget, 2);
        let other = give_back_elsewhere(&budget);
        budget.set_limit(1);
        other.join().unwrap();
        assert_eq!((budget.charged(), budget.excess()), (1, 0));
        run_on(1);
        assert!(!budget.try_charge(1, 0));
    });
}

/// A page's memory, which the owner of its charge may use.
struct Memory(UnsafeCell<u32>);

// SAFETY: handed over by a lock, as the memory of a charge always is; loom
// checks it.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

#[test]
fn a_charge_hands_over_no_memory_by_itself() {
    // The rule that allows the counter to be Relaxed: the uses of a page's memory
    // are ordered by the lock of the pool that it comes from.
    use softfault_engine_loom::lock::Mutex;
    explore(Some(4), || {
        let budget = Budget::new(1);
        let pool = Arc::new(Mutex::new(vec![Memory(UnsafeCell::new(0))]));
        let once = {
            let budget = Arc::clone(&budget);
            move || {
                charge(&budget, 1);
                let memory = pool.lock().pop().expect("charged before it is taken");
                // SAFETY: taken from the pool; loom checks it.
                memory.0.with_mut(|memory| unsafe { *memory += 1 });
                pool.lock().push(memory);
                budget.uncharge(1);
            }
        };
        let other = spawn(once.clone());
        once();
        other.join().unwrap();
        check(&budget, 0);
    });
}
