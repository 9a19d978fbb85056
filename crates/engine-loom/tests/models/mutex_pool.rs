//! Models of mutexes of which a thread wants any one. A thread that sleeps while one is free is a deadlock to loom.

use std::sync::Arc;

use crate::model::explore;
use crate::model::spawn;
use softfault_engine_loom::lock::{MutexPool, order::UNRANKED};

type Two = MutexPool<u32, UNRANKED>;

fn two() -> Arc<Two> {
    Arc::new(MutexPool::new([0, 0]))
}

/// Takes whichever is free first, and counts that in its value.
fn count(two: &Two) {
    *two.lock_any(|| two.try_lock(0..2)) += 1;
}

/// A thread that does this.
fn counts(two: &Arc<Two>) -> loom::thread::JoinHandle<()> {
    let two = Arc::clone(two);
    spawn(move || count(&two))
}

/// All that was counted.
fn total(two: &Two) -> u32 {
    *two.lock(0) + *two.lock(1)
}

#[test]
fn two_waiters_for_one_release() {
    explore(Some(3), || {
        let two = two();
        let (first, second) = (two.lock(0), two.lock(1));
        let waiters = [(); 2].map(|()| counts(&two));
        drop(first);
        // Held until both are done: they wait for no mutex in particular.
        for waiter in waiters {
            waiter.join().unwrap();
        }
        drop(second);
        assert_eq!(total(&two), 2);
    });
}

#[test]
fn two_waiters_for_two_releases() {
    explore(Some(3), || {
        let two = two();
        let (first, second) = (two.lock(0), two.lock(1));
        let waiters = [(); 2].map(|()| counts(&two));
        drop(second);
        drop(first);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(total(&two), 2);
    });
}

#[test]
fn a_waiter_that_may_have_one_of_them_only() {
    // The release of the other wakes it for nothing.
    explore(Some(3), || {
        let two = two();
        let (first, second) = (two.lock(0), two.lock(1));
        let picky = {
            let two = Arc::clone(&two);
            spawn(move || *two.lock_any(|| two.try_lock([1])) += 1)
        };
        let waiter = counts(&two);
        drop(first);
        drop(second);
        waiter.join().unwrap();
        picky.join().unwrap();
        assert_eq!(total(&two), 2);
    });
}
